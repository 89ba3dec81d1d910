// Package stepup verifies one-time passwords (RFC 6238) as the further proof of a
// confirmation, and accepts each of them once (RFC 6238, 5.2), on any number of nodes:
// it records a used code as a call on the same store.
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

// OperationName is the operation of the calls that record used codes.
const OperationName = "stepup.totp"

const (
	period = 30 * time.Second
	digits = otp.DigitsSix
	// skew is how many periods a clock may be off, either way.
	skew = 1
)

// Operation returns the operation to register with the engine that [TOTP] runs its calls
// on. Its window is longer than any code is valid.
func Operation() semel.Operation {
	return semel.Operation{Name: OperationName, Class: semel.Windowed, Window: 10 * time.Minute, Lease: time.Second}
}

// TOTP verifies codes of six digits and 30 seconds by SHA-1, which all authenticator
// apps make. Use its Verify as [semel.ConfirmationPolicy].StepUp. You may use it
// concurrently.
type TOTP struct {
	// Secret returns the shared secret of the call's principal, in base32. An error
	// refuses the call. Required.
	Secret func(ctx context.Context, call semel.Call) (string, error)
	// Runner records used codes; register [Operation] with it. You may set it after
	// you made the engine, before the first call. Required.
	Runner semel.Doer
	// Now is the clock for codes. Defaults to [time.Now].
	Now func() time.Time
}

var (
	errWrong = errors.New("stepup: the code is wrong")
	errUsed  = errors.New("stepup: the code was used already")
)

// Verify verifies Call.StepUp as a code. It accepts a code once for each tenant and
// principal: not for another call, and not for another delivery of the same one. If it
// can't find out whether the code was used, it refuses it.
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
		// The period, not the code, because the same digits may come again later.
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

// match finds the period of the code, in constant time.
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
