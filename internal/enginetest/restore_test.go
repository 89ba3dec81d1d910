package enginetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

// TestNothingThatABackupLeftUnfinishedRunsByItself restores a store from a backup in
// which calls are unfinished that were executed after it.
func TestNothingThatABackupLeftUnfinishedRunsByItself(t *testing.T) {
	const window = 24 * time.Hour
	op := semel.Operation{
		Name: "op", Lease: 3 * time.Second, Window: window, OnFailure: semel.RetryFailure, OnAbandoned: semel.RetryAbandoned,
		Effects: []string{"charge"},
	}
	confirmed := semel.Operation{Name: "confirmed", Window: window, Confirmation: &semel.ConfirmationPolicy{}}
	backup := map[string]func(t *testing.T, e *semel.Engine){
		"its holder was at work": func(t *testing.T, e *semel.Engine) { begin(t, e, call("k")).Detach() },
		"it had failed": func(t *testing.T, e *semel.Engine) {
			must(t, begin(t, e, call("k")).Fail(t.Context(), store.Failure{Code: "c"}, semel.Result{}))
		},
		"it was aborted": func(t *testing.T, e *semel.Engine) {
			must(t, begin(t, e, call("k")).Abort(t.Context(), store.Failure{Code: "c"}))
		},
		"it was abandoned": func(t *testing.T, e *semel.Engine) {
			begin(t, e, call("k")).Detach()
			pass(time.Minute)
			swept(t, e)
		},
	}
	for name, unfinished := range backup {
		for _, by := range []string{"a delivery", "a sweep, and then a delivery"} {
			t.Run(name+"; met by "+by, func(t *testing.T) {
				programs(t, func(t *testing.T, st *memstore.Store) {
					e := program(t, st, semel.Options{}, op)
					first := time.Now()
					unfinished(t, e)
					// Here it was completed, and that is lost.
					pass(time.Hour)
					_, err := e.Internal().NewEpoch(t.Context())
					must(t, err)
					pass(time.Minute)
					if by != "a delivery" {
						swept(t, e)
					}
					c := call("k")
					c.FirstSent = first
					decides(t, e, c, semel.Held)
					if ans, err := e.Internal().Peek(t.Context(), c); err != nil || ans.Decision != semel.Held {
						t.Errorf("peek: %s, %v", ans.Decision, err)
					}
					for range 10 {
						pass(time.Hour)
						swept(t, e)
						decides(t, e, call("k"), semel.Held)
					}
					// Whoever knows better says so.
					_, err = e.Settle(t.Context(), id("k"), semel.Settlement{Outcome: semel.DispositionAborted}, "looked")
					must(t, err)
					must(t, begin(t, e, call("k")).Complete(t.Context(), data("x")))
				})
			})
		}
	}
	t.Run("a token that may have been used is not taken", func(t *testing.T) {
		programs(t, func(t *testing.T, st *memstore.Store) {
			e := program(t, st, semel.Options{}, confirmed)
			c := call("k")
			c.Operation = "confirmed"
			ans, err := e.Begin(t.Context(), c)
			wantCode(t, err, semel.CodeConfirmationRequired)
			pass(time.Millisecond)
			_, err = e.Internal().NewEpoch(t.Context())
			must(t, err)
			c.Confirm = ans.Challenge.Token
			decides(t, e, c, semel.Held)
		})
	})
	t.Run("a holder that goes on starts no effect", func(t *testing.T) {
		programs(t, func(t *testing.T, st *memstore.Store) {
			e := program(t, st, semel.Options{}, op)
			a := begin(t, e, call("k"))
			pass(time.Millisecond)
			_, err := e.Internal().NewEpoch(t.Context())
			must(t, err)
			_, err = a.StartEffect(t.Context(), "charge")
			wantCode(t, err, semel.CodeLeaseLost)
			must(t, a.Complete(t.Context(), data("x"))) // but it knows what it has done
		})
	})
	t.Run("a holder that goes on makes nothing of it run again", func(t *testing.T) {
		writes := map[string]func(ctx context.Context, a *semel.Attempt) error{
			"it renews": func(ctx context.Context, a *semel.Attempt) error { return a.Renew(ctx) },
			"it settles an effect": func(ctx context.Context, a *semel.Attempt) error {
				return a.SettleEffect(ctx, store.EffectFinding{Name: "charge", State: store.EffectRefuted})
			},
			"it fails": func(ctx context.Context, a *semel.Attempt) error {
				return a.Fail(ctx, store.Failure{Code: "c"}, semel.Result{})
			},
			"it abandons": func(ctx context.Context, a *semel.Attempt) error { return a.Abandon(ctx, "gives up") },
		}
		for name, write := range writes {
			for _, elsewhere := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s; elsewhere %v", name, elsewhere), func(t *testing.T) {
					clause.Proves(t, "CORE-INV.1")
					programs(t, func(t *testing.T, st *memstore.Store) {
						e := program(t, st, semel.Options{}, op)
						a := begin(t, e, call("k"))
						_, err := a.StartEffect(t.Context(), "charge")
						must(t, err)
						if name != "it settles an effect" {
							must(t, a.SettleEffect(t.Context(), store.EffectFinding{Name: "charge", State: store.EffectConfirmed}))
						}
						if elsewhere {
							a.Detach()
						}
						// The backup ends here. The effects that the holder has made since are lost.
						pass(time.Millisecond)
						_, err = e.Internal().NewEpoch(t.Context())
						must(t, err)
						pass(100 * time.Millisecond)
						if elsewhere {
							a = attach(t, e, "k", a.Fence())
						}
						wantCode(t, write(t.Context(), a), semel.CodeLeaseLost)
						for range 10 {
							pass(10 * time.Second)
							swept(t, e)
							decides(t, e, call("k"), semel.Held)
						}
						must(t, a.Complete(t.Context(), data("x"))) // it knows what it has done
						decides(t, e, call("k"), semel.Replay)
					})
				})
			}
		}
	})
	t.Run("a compensation is not resumed", func(t *testing.T) {
		programs(t, func(t *testing.T, st *memstore.Store) {
			undone := 0
			paid := semel.Operation{Name: "op", Window: window, Compensation: "undo", Compensate: func(context.Context, semel.Execution, semel.Record) (semel.Result, error) {
				undone++
				return semel.Result{}, semel.Unknown(context.DeadlineExceeded)
			}}
			e := program(t, st, semel.Options{}, paid, semel.Operation{Name: "undo", Window: window, OnAbandoned: semel.RetryAbandoned})
			must(t, begin(t, e, call("k")).Complete(t.Context(), data("x")))
			_, err := e.Compensate(t.Context(), id("k"), "p", "test")
			wantCode(t, err, semel.CodeUnknown)
			pass(time.Millisecond)
			_, err = e.Internal().NewEpoch(t.Context())
			must(t, err)
			for range 10 {
				pass(time.Hour)
				swept(t, e)
			}
			if undone != 1 {
				t.Errorf("it was undone %d times", undone)
			}
		})
	})
	t.Run("after the window nobody delivers it any more, and it is as ever", func(t *testing.T) {
		programs(t, func(t *testing.T, st *memstore.Store) {
			e := program(t, st, semel.Options{}, op)
			begin(t, e, call("k")).Detach()
			pass(time.Millisecond)
			_, err := e.Internal().NewEpoch(t.Context())
			must(t, err)
			pass(window + time.Minute)
			swept(t, e)
			begin(t, e, call("k"))
		})
	})
}
