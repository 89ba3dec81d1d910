// Package stepup verifies one-time passwords (RFC 6238) as the further proof of a
// confirmation, and takes each of them once (RFC 6238, 5.2), on any number of nodes:
// that a code was used is itself a call, on the same store.
package stepup

import (
	"context"
	"crypto/subtle"
	"errors"
	"strconv"
	"time"

	"github.com/pquerna/otp"
	"github.com/pquerna/otp/totp"

	"github.com/semelhq/semel"
)

// OperationName is the operation whose calls are the codes that were used.
const OperationName = "stepup.totp"

const (
	period = 30 * time.Second
	digits = otp.DigitsSix
	// skew is how many periods a clock may be off, either way.
	skew = 1
)

// Operation is to be registered with the engine that [TOTP] runs its calls on. What it
// remembers outlives every code.
func Operation() semel.Operation {
	return semel.Operation{Name: OperationName, Class: semel.Windowed, Window: 10 * time.Minute, Lease: time.Second}
}

// TOTP verifies codes of six digits and 30 seconds by SHA-1, which all authenticator
// apps make. Its Verify is a [semel.ConfirmationPolicy].StepUp. It may be used
// concurrently.
type TOTP struct {
	// Secret is the shared secret of who acts in the call, in base32. An error
	// refuses. Required.
	Secret func(ctx context.Context, call semel.Call) (string, error)
	// Runner remembers the codes that were used; [Operation] is registered with it.
	// It may be set after the engine was made, before the first call. Required.
	Runner semel.Runner
	// Now is the clock that codes are judged by. Defaults to [time.Now].
	Now func() time.Time
}

var (
	errWrong = errors.New("stepup: the code is wrong")
	errUsed  = errors.New("stepup: the code was used already")
)

// Verify takes Call.StepUp as a code. A code is taken once for each tenant and
// principal: not for another call, and not for another delivery of the same one. Where
// it can't be found out whether it was used, it is refused.
func (v *TOTP) Verify(ctx context.Context, call semel.Call) error {
	if v.Runner == nil || v.Secret == nil {
		return errors.New("stepup: no Runner or no Secret")
	}
	if len(call.StepUp) != digits.Length() {
		return errWrong
	}
	secret, err := v.Secret(ctx, call)
	if err != nil {
		return err
	}
	now := time.Now
	if v.Now != nil {
		now = v.Now
	}
	at, ok, err := match(call.StepUp, secret, now())
	if err != nil {
		return err
	}
	if !ok {
		return errWrong
	}
	used := semel.Call{
		Tenant: call.Tenant, Principal: call.Principal, Operation: OperationName,
		// The period, not the code: the same digits may come again some day.
		Key: strconv.FormatInt(at, 10),
	}
	ans, err := v.Runner.Do(ctx, used, func(context.Context, semel.Execution) (semel.Result, error) {
		return semel.Result{}, nil
	})
	if err != nil {
		if ans.Decision != "" && ans.Decision != semel.Execute {
			return errUsed
		}
		return err
	}
	if ans.Decision != semel.Execute {
		return errUsed
	}
	return nil
}

// match finds the period that the code is of. It takes the same time for all codes.
func match(code, secret string, now time.Time) (at int64, ok bool, err error) {
	for d := -skew; d <= skew; d++ {
		t := now.Add(time.Duration(d) * period)
		want, err := totp.GenerateCodeCustom(secret, t, totp.ValidateOpts{
			Period: uint(period / time.Second), Digits: digits, Algorithm: otp.AlgorithmSHA1,
		})
		if err != nil {
			return 0, false, errors.New("stepup: the secret can't be used")
		}
		if subtle.ConstantTimeCompare([]byte(want), []byte(code)) == 1 {
			at, ok = t.Unix()/int64(period/time.Second), true
		}
	}
	return at, ok, nil
}
