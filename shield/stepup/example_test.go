package stepup_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pquerna/otp/totp"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/shield/stepup"
	"github.com/semelhq/semel/store/memstore"
)

// A transfer that is confirmed with a token and a code from an authenticator app. A
// code that was read over a shoulder confirms nothing else.
func Example() {
	verifier := &stepup.TOTP{Secret: func(_ context.Context, call semel.Call) (string, error) {
		return "JBSWY3DPEHPK3PXP", nil // that of call.Principal, from where secrets are
	}}
	engine, err := semel.New(memstore.New(), &semel.Options{Operations: []semel.Operation{
		{Name: "transfer", Confirmation: &semel.ConfirmationPolicy{StepUp: verifier.Verify}},
		stepup.Operation(),
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	verifier.Runner = engine
	ctx := context.Background()
	defer engine.Close(ctx)

	code, err := totp.GenerateCode("JBSWY3DPEHPK3PXP", time.Now())
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, key := range []string{"rent", "theft"} {
		call := semel.Call{Principal: "alice", Operation: "transfer", Key: key}
		asked, err := engine.Begin(ctx, call)
		fmt.Println(key, errors.Is(err, &semel.Error{Code: semel.CodeConfirmationRequired}))

		call.Confirm, call.StepUp = asked.Challenge.Token, code
		answer, err := engine.Do(ctx, call, func(context.Context, semel.Execution) (semel.Result, error) {
			return semel.Result{}, nil
		})
		fmt.Println(key, answer.Decision, errors.Is(err, &semel.Error{Code: semel.CodeConfirmationRefused}))
	}
	// Output:
	// rent true
	// rent execute false
	// theft true
	// theft  true
}
