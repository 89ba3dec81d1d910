package enginetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/storetest/faultstore"
)

// cannotConfirm expects that an operator can't confirm a record.
func cannotConfirm(t *testing.T, e *semel.Engine, key string, code semel.Code) {
	t.Helper()
	_, err := e.Confirm(t.Context(), id(key), 0, "ann", "again")
	wantCode(t, err, code)
}

// TestAnOperatorConfirmsACall: the next delivery runs without a token, once; later ones replay.
func TestAnOperatorConfirmsACall(t *testing.T) {
	clause.Proves(t, "IDS-X.2", "IDS-X.3", "IDS-XIII.6")
	inBubble(t, confirming(semel.ConfirmationPolicy{TTL: time.Minute}), func(t *testing.T, r *rig) {
		token := ask(t, r.Engine, call("k"))
		pass(50 * time.Second)
		rec, err := r.Confirm(t.Context(), id("k"), 0, "ann", "she called")
		if must(t, err); rec.State != semel.Failed || rec.Disposition != semel.DispositionAborted || rec.Settled == nil || rec.Settled.Who != "ann" || rec.Settled.By != store.ByOperator || rec.Settled.Reason != "she called" || rec.Confirmation.ConfirmedAt != 0 {
			t.Errorf("%+v", rec)
		}
		cannotConfirm(t, r.Engine, "k", semel.CodeIllegalTransition)
		pass(59 * time.Second) // from the confirmation on, whatever is left of the token
		a := begin(t, r.Engine, call("k"))
		if earlier := a.Record().Earlier; a.Number() != 2 || a.Record().Settled != nil || len(earlier) != 1 || earlier[0].Settled.Who != "ann" {
			t.Errorf("%+v", a.Record())
		}
		decides(t, r.Engine, call("k"), semel.InFlight)
		cannotConfirm(t, r.Engine, "k", semel.CodeIllegalTransition)
		must(t, a.Complete(t.Context(), data("done")))
		for _, c := range []semel.Call{call("k"), with(call("k"), token)} {
			if ans := decides(t, r.Engine, c, semel.Replay); string(ans.Record.Result.Data) != "done" {
				t.Errorf("%+v", ans.Record)
			}
		}
		cannotConfirm(t, r.Engine, "k", semel.CodeIllegalTransition)
		ask(t, r.Engine, call("other"))
	})
}

// TestAnOperatorConfirmsOnlyTheCallThatWasAskedFor: another payload, principal or command doesn't run.
func TestAnOperatorConfirmsOnlyTheCallThatWasAskedFor(t *testing.T) {
	clause.Proves(t, "IDS-X.1", "IDS-XIII.6")
	for _, share := range []semel.Share{"", semel.ShareTenant} {
		op := confirming(semel.ConfirmationPolicy{MaxTries: 100})
		op.Share, op.Authorize = share, func(context.Context, semel.Call, semel.Record) error { return nil }
		inBubble(t, op, func(t *testing.T, r *rig) {
			mine := call("k")
			mine.Attributes = store.Attributes{semel.AttributeCommandID: "c1"}
			ask(t, r.Engine, mine)
			name := id("k")
			if share == semel.ShareTenant {
				name.Principal = ""
			}
			_, err := r.Confirm(t.Context(), name, 0, "ann", "")
			must(t, err)
			// A payload that the caller corrects takes the place of an aborted one, but not here.
			c := mine
			c.Fingerprint = payload("y")
			decides(t, r.Engine, c, semel.Conflict)
			for _, code := range []semel.Code{semel.CodeConfirmationRequired, semel.CodeConfirmationRefused} {
				for what, change := range map[string]func(*semel.Call){
					"tenant":    func(c *semel.Call) { c.Tenant = "other" },
					"principal": func(c *semel.Call) { c.Principal = "other" },
					"key":       func(c *semel.Call) { c.Key = "other" },
					"command":   func(c *semel.Call) { c.Attributes = store.Attributes{semel.AttributeCommandID: "c2"} },
				} {
					c := mine
					if change(&c); code == semel.CodeConfirmationRefused {
						c.Confirm = "wrong"
					}
					want := code
					if what == "principal" && share == semel.ShareTenant {
						want = semel.CodeConfirmationRefused
					}
					if ans, err := r.Begin(t.Context(), c); !errors.Is(err, &semel.Error{Code: want}) || ans.Attempt != nil {
						t.Errorf("%q: with another %s: got %v, want %s", share, what, err, want)
					}
				}
			}
			if rec, err := r.Lookup(t.Context(), name); err != nil || rec.Settled == nil { // which that hasn't spoiled
				t.Errorf("%+v, %v", rec, err)
			}
			begin(t, r.Engine, mine)
		})
	}
}

// TestAnOperatorsConfirmationRunsOnce: of any number of deliveries, through several engines.
func TestAnOperatorsConfirmationRunsOnce(t *testing.T) {
	clause.Proves(t, "IDS-X.2", "IDS-XIII.6")
	inBubble(t, confirming(semel.ConfirmationPolicy{}), func(t *testing.T, r *rig) {
		engines := []*semel.Engine{r.Engine, r.second(t)}
		token := ask(t, r.Engine, call("k"))
		_, err := engines[1].Confirm(t.Context(), id("k"), 0, "ann", "")
		must(t, err)
		var executed, confirmed atomic.Int32
		var wg sync.WaitGroup
		for i := range 40 {
			wg.Go(func() {
				c := call("k")
				if i%4 == 0 {
					c.Confirm = token
				}
				ans, err := engines[i%2].Begin(t.Context(), c)
				switch {
				case err == nil && ans.Decision == semel.Execute:
					executed.Add(1)
				case err != nil || ans.Decision != semel.InFlight:
					t.Errorf("%s, %v", ans.Decision, err)
				}
			})
			wg.Go(func() {
				if _, err := r.Confirm(t.Context(), id("k"), 0, "eve", ""); err == nil {
					confirmed.Add(1)
				}
			})
		}
		if wg.Wait(); executed.Load() != 1 || confirmed.Load() != 0 {
			t.Errorf("%d deliveries executed, %d further confirmations", executed.Load(), confirmed.Load())
		}
	})
}

// TestAnOperatorsConfirmationEnds: the call is asked for anew then, and what it did before its
// operation asked for confirmations stays.
func TestAnOperatorsConfirmationEnds(t *testing.T) {
	clause.Proves(t, "IDS-X.2")
	for _, tried := range []bool{false, true} {
		t.Run(fmt.Sprintf("tried before: %t", tried), func(t *testing.T) {
			inBubble(t, semel.Operation{OnFailure: semel.RetryFailure}, func(t *testing.T, r *rig) {
				if tried {
					must(t, begin(t, r.Engine, call("k")).Fail(t.Context(), store.Failure{}, semel.Result{}))
				}
				op := confirming(semel.ConfirmationPolicy{TTL: time.Minute})
				op.Name, op.OnFailure = "op", semel.RetryFailure
				must(t, r.Register(op))
				ask(t, r.Engine, call("k"))
				_, err := r.Confirm(t.Context(), id("k"), 0, "ann", "")
				must(t, err)
				pass(time.Minute)
				if !tried {
					cannotConfirm(t, r.Engine, "k", semel.CodeIllegalTransition)
				}
				ask(t, r.Engine, call("k"))
				if rec, err := r.Lookup(t.Context(), id("k")); err != nil || rec.Settled != nil || rec.Confirmation.ConfirmedAt != 0 {
					t.Errorf("%+v, %v", rec, err)
				}
				_, err = r.Confirm(t.Context(), id("k"), 0, "ann", "")
				must(t, err)
				begin(t, r.Engine, call("k"))
			})
		})
	}
}

// TestAnOperatorCannotConfirm names the records that no operator may confirm.
func TestAnOperatorCannotConfirm(t *testing.T) {
	clause.Proves(t, "IDS-X.4", "IDS-XIII.6")
	plain := semel.Operation{Name: "plain"}
	proved := confirming(semel.ConfirmationPolicy{StepUp: func(context.Context, semel.Call) error { return nil }})
	proved.Name = "proved"
	opts := semel.Options{Operations: []semel.Operation{plain, proved}}
	inBubbleWith(t, opts, confirming(semel.ConfirmationPolicy{MaxTries: 2, TTL: time.Minute}), func(t *testing.T, r *rig) {
		cannotConfirm(t, r.Engine, "nothing", semel.CodeNotFound)
		for name, code := range map[string]semel.Code{"plain": semel.CodeIllegalTransition, "proved": semel.CodeUnsupported, "unknown": semel.CodeUnknownOperation} {
			c := call("k")
			if c.Operation = name; name == "plain" {
				must(t, begin(t, r.Engine, c).Abort(t.Context(), store.Failure{}))
			} else if name == "proved" {
				ask(t, r.Engine, c)
			}
			_, err := r.Confirm(t.Context(), c.ID(""), 0, "ann", "")
			wantCode(t, err, code)
		}
		ask(t, r.Engine, call("k"))
		for range 2 {
			refused(t, r.Engine, with(call("k"), "wrong"))
		}
		cannotConfirm(t, r.Engine, "k", semel.CodeIllegalTransition)
		// Guesses after a confirmation void it, too.
		ask(t, r.Engine, call("guessed"))
		_, err := r.Confirm(t.Context(), id("guessed"), 0, "ann", "")
		must(t, err)
		for range 2 {
			refused(t, r.Engine, with(call("guessed"), "wrong"))
		}
		refused(t, r.Engine, call("guessed"))
	})
}

// TestAConfirmationIsWrittenOnce: whether a write arrived whose answer was lost, or not.
func TestAConfirmationIsWrittenOnce(t *testing.T) {
	for _, form := range forms {
		t.Run(string(form), func(t *testing.T) {
			inBubble(t, confirming(semel.ConfirmationPolicy{}), func(t *testing.T, r *rig) {
				ask(t, r.Engine, call("k"))
				r.faults.Next(faultstore.Apply, form, 3)
				rec, err := r.Confirm(t.Context(), id("k"), 0, "ann", "")
				if must(t, err); len(rec.Confirmation.Tokens) != 2 {
					t.Errorf("%+v", rec.Confirmation)
				}
				begin(t, r.Engine, call("k"))
			})
		})
	}
}
