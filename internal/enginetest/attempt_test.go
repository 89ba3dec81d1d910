package enginetest

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/storetest/faultstore"
)

func TestEndingsAndWhatTheNextDeliveryGets(t *testing.T) {
	clause.Proves(t, "CORE-INV.2", "MAP-FLOW.4")
	f := store.Failure{Code: "card_declined", Message: "the card was declined"}
	for _, c := range []struct {
		name    string
		op      semel.Operation
		end     func(*semel.Attempt) error
		next    semel.Decision
		code    semel.Code
		message string
	}{
		{"complete", semel.Operation{}, func(a *semel.Attempt) error { return a.Complete(context.Background(), data("x")) }, semel.Replay, "", ""},
		{"reject", semel.Operation{OnFailure: semel.RetryFailure}, func(a *semel.Attempt) error { return a.Reject(context.Background(), f, data("x")) }, semel.Replay, semel.CodeRejected, f.Message},
		{"fail", semel.Operation{}, func(a *semel.Attempt) error { return a.Fail(context.Background(), f, data("x")) }, semel.Replay, semel.CodeFailed, f.Message},
		{"fail under retry", semel.Operation{OnFailure: semel.RetryFailure}, func(a *semel.Attempt) error { return a.Fail(context.Background(), f, data("x")) }, semel.Execute, "", ""},
		{"abort", semel.Operation{}, func(a *semel.Attempt) error { return a.Abort(context.Background(), f) }, semel.Execute, "", ""},
		{"hold", semel.Operation{}, func(a *semel.Attempt) error { return a.Hold(context.Background(), "timeout") }, semel.Held, semel.CodeHeld, "timeout"},
		{"abandon", semel.Operation{}, func(a *semel.Attempt) error { return a.Abandon(context.Background(), "gave up") }, semel.Held, semel.CodeHeld, "gave up"},
		{"abandon under retry", semel.Operation{OnAbandoned: semel.RetryAbandoned}, func(a *semel.Attempt) error { return a.Abandon(context.Background(), "gave up") }, semel.Execute, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, c.op, func(t *testing.T, r *rig) {
				a := begin(t, r.Engine, call("k"))
				must(t, c.end(a))
				must(t, c.end(a)) // an identical repeat is harmless
				if err := a.Complete(t.Context(), data("something else")); !errors.Is(err, &semel.Error{Code: semel.CodeAlreadyEnded}) {
					t.Errorf("another end after the first: %v", err)
				}
				if a.Context().Err() == nil {
					t.Error("the context outlives the attempt")
				}
				ans, err := r.Begin(t.Context(), call("k"))
				must(t, err)
				if ans.Decision != c.next {
					t.Fatalf("the next delivery got %s, want %s", ans.Decision, c.next)
				}
				if c.next == semel.Execute {
					if ans.Attempt.Number() != 2 || len(ans.Record.Earlier) != 1 || ans.Record.Earlier[0].Fence != a.Fence() {
						t.Errorf("the history was not kept: %+v", ans.Record)
					}
					return
				}
				if err := ans.Err(); c.code == "" {
					must(t, err)
				} else if e := wantCode(t, err, c.code); e.Message != c.message {
					t.Errorf("the message is %q", e.Message)
				}
			})
		})
	}
}

func TestHandlerErrorsEndTheAttemptAsTheySay(t *testing.T) {
	cause := errors.New("boom")
	for _, c := range []struct {
		name   string
		op     semel.Operation
		effect error // what the provider says; errNone: it is not called
		err    error
		state  semel.State
		how    store.Disposition
		code   semel.Code
		replay semel.Code
	}{
		{"a plain error runs again", semel.Operation{}, errNone, cause, semel.Failed, semel.DispositionAborted, semel.CodeAborted, ""},
		{"a plain error of a financial operation is kept", semel.Operation{Financial: true}, errNone, cause, semel.Failed, semel.DispositionFailed, semel.CodeFailed, semel.CodeFailed},
		{"a plain error of one that says retry", semel.Operation{Financial: true, OnFailure: semel.RetryFailure}, errNone, cause, semel.Failed, semel.DispositionFailed, semel.CodeFailed, ""},
		{"a plain error after an effect is kept", semel.Operation{}, nil, cause, semel.Failed, semel.DispositionFailed, semel.CodeFailed, semel.CodeFailed},
		{"a plain error after an effect that did not happen", semel.Operation{}, semel.Aborted(cause), cause, semel.Failed, semel.DispositionAborted, semel.CodeAborted, ""},
		{"a plain error after an effect that failed", semel.Operation{}, semel.Failure(cause), cause, semel.Failed, semel.DispositionAborted, semel.CodeAborted, ""},
		{"a plain error after an effect without a result", semel.Operation{}, cause, cause, semel.Processing, 0, semel.CodeUnknown, semel.CodeHeld},
		{"marked as a failure", semel.Operation{}, errNone, semel.Failure(cause), semel.Failed, semel.DispositionFailed, semel.CodeFailed, semel.CodeFailed},
		{"rejected", semel.Operation{}, errNone, semel.Rejected("no_funds", cause), semel.Failed, semel.DispositionRejected, semel.CodeRejected, semel.CodeRejected},
		{"aborted", semel.Operation{}, errNone, semel.Aborted(cause), semel.Failed, semel.DispositionAborted, semel.CodeAborted, ""},
		{"unknown", semel.Operation{}, errNone, semel.Unknown(cause), semel.Processing, 0, semel.CodeUnknown, semel.CodeHeld},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, c.op, func(t *testing.T, r *rig) {
				ans, err := r.Do(t.Context(), call("k"), func(ctx context.Context, x semel.Execution) (semel.Result, error) {
					if c.effect != errNone {
						_, _ = semel.Effect(ctx, x, "charge", func(context.Context, string) (int, error) { return 1, c.effect })
					}
					return data("more"), c.err
				})
				if wantCode(t, err, c.code); !errors.Is(err, cause) {
					t.Errorf("the first caller can't find its own error in %v", err)
				}
				if ans.Record.State != c.state || ans.Record.Disposition != c.how {
					t.Errorf("%s %s", ans.Record.State, ans.Record.Disposition)
				}
				ans, err = r.Do(t.Context(), call("k"), func(context.Context, semel.Execution) (semel.Result, error) {
					return data("second run"), nil
				})
				if c.replay == "" {
					if must(t, err); string(ans.Record.Result.Data) != "second run" {
						t.Errorf("got %q", ans.Record.Result.Data)
					}
					return
				}
				wantCode(t, err, c.replay)
			})
		})
	}
}

// errNone stands for no error at all.
var errNone = errors.New("none")

// A panic proves nothing: only a declared ledger does.
func TestPanicsAreRecordedAndPass(t *testing.T) {
	for name, body := range map[string]func(){
		"panic":  func() { panic("boom") },
		"goexit": runtime.Goexit,
	} {
		for kind, c := range map[string]struct {
			op         semel.Operation
			open, held bool
		}{
			" is held":                                  {semel.Operation{}, false, true},
			" is held with an open effect":              {semel.Operation{}, true, true},
			" runs again where the ledger has it all":   {semel.Operation{Effects: []string{"charge"}}, false, false},
			" is held where the ledger has it open":     {semel.Operation{Effects: []string{"charge"}}, true, true},
			" runs again where the operation says so":   {semel.Operation{OnAbandoned: semel.RetryAbandoned}, false, false},
			" of a financial operation is held as well": {semel.Operation{Financial: true}, false, true},
		} {
			t.Run(name+kind, func(t *testing.T) {
				inBubble(t, c.op, func(t *testing.T, r *rig) {
					var passed any
					done := make(chan struct{})
					go func() {
						defer close(done)
						defer func() { passed = recover() }()
						_, _ = r.Do(t.Context(), call("k"), func(ctx context.Context, a semel.Execution) (semel.Result, error) {
							if c.open {
								_, _ = semel.Effect(ctx, a, "charge", func(context.Context, string) (int, error) {
									body()
									return 0, nil
								})
							}
							body()
							return semel.Result{}, nil
						})
					}()
					<-done
					if name == "panic" && passed != "boom" {
						t.Errorf("the panic passed as %v", passed)
					}
					rec, err := r.Lookup(t.Context(), id("k"))
					must(t, err)
					if c.held != (rec.Held) || !c.held && rec.Disposition != semel.DispositionAbandoned {
						t.Errorf("recorded as %s %s, held %q", rec.State, rec.Disposition, rec.HeldReason)
					}
				})
			})
		}
	}
}

func TestCallerThatHangsUpStopsNothing(t *testing.T) {
	inBubble(t, semel.Operation{}, func(t *testing.T, r *rig) {
		type key struct{}
		ctx, hangUp := context.WithCancel(context.WithValue(t.Context(), key{}, "kept"))
		_, err := r.Do(ctx, call("k"), func(ctx context.Context, _ semel.Execution) (semel.Result, error) {
			hangUp()
			if ctx.Err() != nil || ctx.Value(key{}) != "kept" {
				t.Errorf("the handler saw %v, %v", ctx.Err(), ctx.Value(key{}))
			}
			return data("done"), nil
		})
		must(t, err)
		decides(t, r.Engine, call("k"), semel.Replay)
	})
}

func TestLeaseRenewsItselfAtAThird(t *testing.T) {
	inBubble(t, semel.Operation{Lease: 30 * time.Second}, func(t *testing.T, r *rig) {
		a := begin(t, r.Engine, call("k"))
		until := a.Record().LeaseUntil
		pass(10*time.Second - time.Millisecond)
		if got := a.Record().LeaseUntil; got != until {
			t.Errorf("renewed before a third of the lease")
		}
		pass(time.Millisecond)
		if got := a.Record().LeaseUntil; got.Sub(until) != 10*time.Second {
			t.Errorf("at a third of the lease it was moved by %v", got.Sub(until))
		}
		pass(10 * time.Minute)
		decides(t, r.second(t), call("k"), semel.InFlight)
		if a.Context().Err() != nil {
			t.Error("the handler was told to stop")
		}
		must(t, a.Complete(t.Context(), data("x")))
		stored := r.store.Len()
		pass(time.Hour)
		if rec, err := r.Lookup(t.Context(), id("k")); err != nil || rec.State != semel.Completed || stored != 1 {
			t.Errorf("after the end: %+v, %v", rec, err)
		}
	})
}

func TestLostLeaseCancelsTheHandlerInTime(t *testing.T) {
	lost := 0
	opts := semel.Options{Events: &semel.Events{LeaseLost: func(semel.LeaseLost) { lost++ }}}
	inBubbleWith(t, opts, semel.Operation{Lease: 30 * time.Second}, func(t *testing.T, r *rig) {
		second := r.second(t)
		for _, form := range []faultstore.Form{faultstore.NotApplied, faultstore.Hang} {
			a := begin(t, r.Engine, call(string(form)))
			ctx := a.Context()
			start := time.Now()
			r.faults.Cut(form) // the store can't be reached from here
			<-ctx.Done()
			if d := time.Since(start); d >= 30*time.Second || d < 20*time.Second {
				t.Errorf("%s: told to stop %v after the claim, under a lease of 30 s", form, d)
			}
			if !errors.Is(context.Cause(ctx), semel.ErrLeaseLost) {
				t.Errorf("%s: the cause is %v", form, context.Cause(ctx))
			}
			pass(10 * time.Second)
			decides(t, second, call(string(form)), semel.Held)
			r.faults.Heal()
			pass(time.Minute)
		}
		if lost != 2 || len(r.faults.Fired()) < 2 {
			t.Errorf("%d losses told, faults %v", lost, r.faults.Fired())
		}
	})
}

func TestStaleHolderCanChangeNothing(t *testing.T) {
	clause.Proves(t, "CORE-INV.1", "CORE-INV.3")
	op := semel.Operation{Lease: 3 * time.Second, OnAbandoned: semel.RetryAbandoned}
	inBubble(t, op, func(t *testing.T, r *rig) {
		stale := begin(t, r.Engine, call("k"))
		r.faults.Cut(faultstore.NotApplied)
		pass(4 * time.Second)
		second := r.second(t)
		next := begin(t, second, call("k"))
		r.faults.Heal()
		ctx := context.Background()
		before, err := r.Lookup(ctx, id("k"))
		must(t, err)
		for name, err := range map[string]error{
			"complete": stale.Complete(ctx, data("stale")),
			"fail":     stale.Fail(ctx, store.Failure{}, semel.Result{}),
			"reject":   stale.Reject(ctx, store.Failure{}, semel.Result{}),
			"abort":    stale.Abort(ctx, store.Failure{}),
			"hold":     stale.Hold(ctx, "?"),
			"renew":    stale.Renew(ctx),
		} {
			if !errors.Is(err, semel.ErrLeaseLost) {
				t.Errorf("%s by a stale holder: %v", name, err)
			}
		}
		_, err = semel.Effect(ctx, stale, "charge", func(context.Context, string) (int, error) {
			t.Error("a stale holder made an effect")
			return 0, nil
		})
		if !errors.Is(err, semel.ErrLeaseLost) {
			t.Errorf("effect by a stale holder: %v", err)
		}
		if after, err := r.Lookup(ctx, id("k")); err != nil || after.Revision != before.Revision {
			t.Errorf("the record changed: %+v, %v", after, err)
		}
		must(t, next.Complete(ctx, data("right")))
		if ans := decides(t, r.Engine, call("k"), semel.Replay); string(ans.Record.Result.Data) != "right" {
			t.Errorf("got %q", ans.Record.Result.Data)
		}
	})
}

func TestHolderOfAHeldRecordMayStillTellTheOutcome(t *testing.T) {
	inBubble(t, semel.Operation{Lease: 3 * time.Second}, func(t *testing.T, r *rig) {
		a := begin(t, r.Engine, call("k"))
		r.faults.Cut(faultstore.NotApplied)
		pass(4 * time.Second)
		decides(t, r.second(t), call("k"), semel.Held)
		r.faults.Heal()
		wantCode(t, a.Renew(t.Context()), semel.CodeLeaseLost) // it may not go on
		must(t, a.Complete(t.Context(), data("it had happened")))
		decides(t, r.Engine, call("k"), semel.Replay)
	})
}

func TestHandlerThatWasToldToStopDoesNotRecordAFailure(t *testing.T) {
	inBubble(t, semel.Operation{Lease: 3 * time.Second}, func(t *testing.T, r *rig) {
		_, err := r.Do(t.Context(), call("k"), func(ctx context.Context, _ semel.Execution) (semel.Result, error) {
			r.faults.Cut(faultstore.NotApplied)
			<-ctx.Done()
			r.faults.Heal()
			return semel.Result{}, ctx.Err()
		})
		wantCode(t, err, semel.CodeLeaseLost)
		pass(time.Second)
		decides(t, r.Engine, call("k"), semel.Held)
	})
}

func TestEventsTellEverything(t *testing.T) {
	var log []string
	add := func(s ...string) { log = append(log, strings.Join(s, " ")) }
	opts := semel.Options{Events: &semel.Events{
		Decided: func(e semel.Decided) { add("decided", string(e.Decision)) },
		Ended: func(e semel.Ended) {
			add("ended", e.Disposition.String(), e.HeldReason, e.By, e.Reason, e.Took.String())
		},
		StoreFailed: func(e semel.StoreFailed) { add("failed", e.Call) },
		Purged:      func(semel.Purged) { add("purged") },
	}}
	inBubbleWith(t, opts, semel.Operation{Window: time.Minute}, func(t *testing.T, r *rig) {
		a := begin(t, r.Engine, call("k"))
		pass(time.Second)
		r.faults.Next(faultstore.Apply, faultstore.Applied, 1)
		must(t, a.Hold(t.Context(), "why"))
		decides(t, r.Engine, call("k"), semel.Held)
		_, err := r.Settle(t.Context(), id("k"), semel.Settlement{Outcome: semel.DispositionCompleted}, "phoned the bank")
		must(t, err)
		pass(time.Minute)
		_, err = r.Sweep(t.Context())
		must(t, err)
		synctest.Wait()
	})
	want := []string{
		"decided execute", "failed apply", "ended  why holder  1s", "decided held",
		"ended completed  operator phoned the bank 1.002s", "purged",
	}
	if got := strings.Join(log, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
}
