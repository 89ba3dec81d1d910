package storetest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store/storetest/faultstore"
)

const (
	ruleClosed  = "While the store is unreachable nothing is executed. No error frees a key, and none blocks it for good."
	ruleResolve = "After an error the engine sends the same write again and sees whether its own revision is there."
)

// unavailable is the error that a caller gets while the store fails.
var unavailable = &semel.Error{Code: semel.CodeStoreUnavailable}

// failing are the forms of failure that a caller learns of at once.
var failing = []faultstore.Form{faultstore.NotApplied, faultstore.Applied, faultstore.Late}

// shortTimeout is how long an engine waits for a store that fails. It is short, because on stores
// with real time the cases wait that long many times. A healthy store may need longer on a busy
// machine, so the cases retry.
const shortTimeout = 400 * time.Millisecond

// withShortTimeout is faulty, for cases in which the store fails until the engine gives up.
func withShortTimeout(t *testing.T, s semel.Store) (*semel.Engine, *faultstore.Control) {
	t.Helper()
	wrapped, control := faultstore.New(s, nil)
	t.Cleanup(control.Settle)
	return configured(t, wrapped, &semel.Options{Operations: []semel.Operation{opHold}, StoreTimeout: shortTimeout}), control
}

var faultCases = []testCase{
	{"a claim or a completion whose result is unknown for a moment is resolved", ruleResolve, func(t *testing.T, env Env) {
		clause.Proves(t, "CORE-INV.3")
		e, control := faulty(t, env.Store)
		for _, form := range failing {
			for n := 1; n <= 4; n++ {
				c := call(opHold, fmt.Sprintf("%s %d", form, n))
				control.Next(faultstore.Apply, form, n)
				ans := begin(t, e, c, semel.Execute)
				control.Next(faultstore.Apply, form, n)
				complete(t, ans.Attempt, "done")
				replays(t, e, c, "done")
			}
		}
		fired(t, control)
	}},
	{"while the store fails at the claim nothing is executed, and afterwards the call runs once", ruleClosed, func(t *testing.T, env Env) {
		clause.Proves(t, "G-CLOSED")
		e, control := withShortTimeout(t, env.Store)
		patient := newEngine(t, env.Store)
		for _, form := range append(failing, faultstore.Hang) {
			c := call(opHold, string(form))
			ran := 0
			do := func() (semel.Answer, error) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				return e.Do(ctx, c, func(context.Context, semel.Execution) (semel.Result, error) {
					ran++
					return semel.Result{Data: []byte("done")}, nil
				})
			}
			for _, verb := range []faultstore.Verb{faultstore.Now, faultstore.Apply} {
				control.Next(verb, form, 1000)
				ans, err := do()
				if !errors.Is(err, unavailable) && !errors.Is(err, context.DeadlineExceeded) {
					t.Fatalf("form %q of %s: Do gives %s, %v", form, verb, ans.Decision, err)
				}
				if ran != 0 {
					t.Fatalf("form %q of %s: the handler ran although nobody knows whether the claim is durable", form, verb)
				}
				control.Heal()
			}
			eventually(t, "a later delivery executes or replays", func() bool {
				ans, err := do()
				if err != nil && !errors.Is(err, semel.ErrInFlight) && !errors.Is(err, unavailable) {
					t.Fatalf("form %q: a later delivery got %s, %v", form, ans.Decision, err)
				}
				return err == nil
			})
			replays(t, patient, c, "done")
			if ran != 1 {
				t.Fatalf("form %q: the handler ran %d times", form, ran)
			}
		}
		fired(t, control)
	}},
	{"a completion that stays unknown says so, and calling again resolves it",
		"An error with CodeUnknown means that the store did not say whether the result was kept; calling again resolves it.",
		func(t *testing.T, env Env) {
			e, control := withShortTimeout(t, env.Store)
			patient := newEngine(t, env.Store)
			for _, form := range failing {
				c := call(opHold, string(form))
				var ans semel.Answer
				eventually(t, "the call is begun", func() (ok bool) {
					var err error
					if ans, err = e.Begin(t.Context(), c); err != nil && !errors.Is(err, unavailable) {
						t.Fatalf("form %q: Begin: %v", form, err)
					}
					return err == nil && ans.Decision == semel.Execute
				})
				control.Next(faultstore.Apply, form, 1000)
				err := ans.Attempt.Complete(t.Context(), semel.Result{Data: []byte("done")})
				if !errors.Is(err, semel.ErrUnknown) {
					t.Fatalf("form %q: Complete gives %v while the store does not answer", form, err)
				}
				control.Heal()
				eventually(t, "Complete once more resolves it", func() bool {
					err := ans.Attempt.Complete(t.Context(), semel.Result{Data: []byte("done")})
					if err != nil && !errors.Is(err, semel.ErrUnknown) {
						t.Fatalf("form %q: Complete once more gives %v", form, err)
					}
					return err == nil
				})
				replays(t, patient, c, "done")
			}
			fired(t, control)
		}},
	{"a renewal that fails for a moment does not cost the lease", ruleResolve, func(t *testing.T, env Env) {
		e, control := faulty(t, env.Store)
		other := newEngine(t, env.Store)
		for _, form := range failing {
			c := call(opRetry, string(form))
			ans := begin(t, e, c, semel.Execute)
			before := ans.Attempt.Record().LeaseUntil
			env.Advance(time.Second)
			control.Next(faultstore.Apply, form, 3)
			if err := ans.Attempt.Renew(t.Context()); err != nil {
				t.Fatalf("form %q: Renew: %v", form, err)
			}
			if until := ans.Attempt.Record().LeaseUntil; until <= before {
				t.Fatalf("form %q: Renew moved the lease from %v to %v", form, before, until)
			}
			begin(t, other, c, semel.InFlight)
			complete(t, ans.Attempt, "done")
		}
		fired(t, control)
	}},
}
