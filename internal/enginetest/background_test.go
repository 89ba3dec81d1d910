package enginetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

// A refund that the store kept from being made at the first try is made later.
func TestACompensationThatWasAbandonedIsMadeLater(t *testing.T) {
	clause.Proves(t, "IDS-XI.S4")
	synctest.Test(t, func(t *testing.T) {
		st, tries, refunded := newStalling(), 0, 0
		ops := undoing(func(ctx context.Context, x semel.Execution, _ semel.Record) (semel.Result, error) {
			if tries++; tries == 1 {
				st.writeBy(func(context.Context, store.Write) (*semel.Record, bool, error) {
					return nil, false, errors.New("the connection broke")
				})
				time.AfterFunc(6*time.Second, func() { st.writeBy(nil) })
			}
			_, err := semel.Effect(ctx, x, "refund", func(context.Context, string) (int, error) {
				refunded++
				return refunded, nil
			})
			return semel.Result{}, err
		}, semel.Operation{Effects: []string{"refund"}})
		e := program(t, st, semel.Options{}, ops...)
		paid(t, e)
		if _, err := e.Compensate(t.Context(), id("k"), "operator", "by mistake"); err == nil {
			t.Fatal("the store did not fail")
		}
		for range 120 {
			pass(time.Second)
			swept(t, e)
		}
		rec, err := e.Lookup(t.Context(), id("k"))
		if must(t, err); refunded != 1 || rec.Compensation.State != store.CompensationDone {
			t.Errorf("refunded %d times; the compensation is %s, %+v", refunded, rec.Compensation.State, rec.Compensation.Failure)
		}
	})
}

// unfinished leaves a call whose compensation has begun and is to be resumed.
func unfinished(t *testing.T, e *semel.Engine, key string) {
	t.Helper()
	must(t, begin(t, e, call(key)).Complete(t.Context(), data("paid")))
	if _, err := e.Compensate(t.Context(), id(key), "operator", "test"); err == nil {
		t.Fatal("it was compensated at once")
	}
}

// aborts is a compensator that fails while down is set, and otherwise calls next.
func aborts(down *atomic.Bool, next func()) semel.Compensator {
	return func(context.Context, semel.Execution, semel.Record) (semel.Result, error) {
		if down.Load() {
			return semel.Result{}, semel.Aborted(errors.New("the provider is down"))
		}
		next()
		return semel.Result{}, nil
	}
}

// When a provider is back it doesn't get everything at once.
func TestCompensationsAreBounded(t *testing.T) {
	const calls, most = 100, 16
	programs(t, func(t *testing.T, st *memstore.Store) {
		var down atomic.Bool
		var running, peak, made atomic.Int64
		down.Store(true)
		e := program(t, st, semel.Options{}, undoing(aborts(&down, func() {
			peak.Store(max(peak.Load(), running.Add(1)))
			<-time.After(time.Second)
			running.Add(-1)
			made.Add(1)
		}), semel.Operation{})...)
		for i := range calls {
			unfinished(t, e, fmt.Sprint("k", i))
		}
		down.Store(false)
		pass(time.Minute)
		for range 2 * calls / most {
			_, _ = e.Sweep(t.Context()) // which says that some wait
			pass(time.Second)
		}
		if peak.Load() != most || made.Load() != calls {
			t.Errorf("%d of %d were made, %d at once", made.Load(), calls, peak.Load())
		}
	})
}

// An engine that can't compensate leaves compensations to those that can.
func TestWhoCannotCompensatePutsNothingOff(t *testing.T) {
	programs(t, func(t *testing.T, st *memstore.Store) {
		var down atomic.Bool
		made := 0
		down.Store(true)
		ops := undoing(aborts(&down, func() { made++ }), semel.Operation{})
		e := program(t, st, semel.Options{}, ops...)
		without := ops[0]
		without.Compensation, without.Compensate = "", nil
		for name, other := range map[string]*semel.Engine{
			"without a compensator":              program(t, st, semel.Options{}, without, ops[1]),
			"without the compensating operation": program(t, st, semel.Options{}, ops[0]),
		} {
			down.Store(true)
			unfinished(t, e, name)
			before, err := e.Lookup(t.Context(), id(name))
			must(t, err)
			down.Store(false)
			pass(time.Minute)
			if n := swept(t, other); n != (semel.Swept{Due: 1, Left: 1}) {
				t.Errorf("%s: swept %+v", name, n)
			}
			if after, err := e.Lookup(t.Context(), id(name)); err != nil || after.Revision != before.Revision {
				t.Errorf("%s: it wrote %+v", name, after.Compensation)
			}
			swept(t, e)
		}
		if made != 2 {
			t.Errorf("%d compensations were made", made)
		}
	})
}

// What can't be finished for a long time is looked at less and less.
func TestACompensationThatStaysUnknownIsResumedLessOften(t *testing.T) {
	programs(t, func(t *testing.T, st *memstore.Store) {
		resumed := 0
		events := &semel.Events{Compensated: func(ev semel.Compensated) {
			resumed++
			if ev.Err == nil || ev.ID != id("k") {
				t.Errorf("told %+v", ev)
			}
		}}
		e := program(t, st, semel.Options{Events: events}, undoing(func(context.Context, semel.Execution, semel.Record) (semel.Result, error) {
			return semel.Result{}, semel.Unknown(errors.New("no answer"))
		}, semel.Operation{Window: 48 * time.Hour})...)
		unfinished(t, e, "k")
		for range 24 * 60 {
			pass(time.Minute)
			swept(t, e)
		}
		if resumed < 24 || resumed > 48 {
			t.Errorf("it was resumed %d times in a day", resumed)
		}
	})
}

// A panic in a goroutine of the engine would end the process, and after it each other
// process that finds the record.
func TestPanicsOfTheProgramInTheBackground(t *testing.T) {
	panics := func(now *atomic.Bool) {
		if now.Load() {
			var none *semel.Record
			_ = none.State
		}
	}
	reported := func(t *testing.T, err error, who string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), who+" panicked at background_test.go:") {
			t.Errorf("reported %v", err)
		}
	}
	t.Run("a reconciler leaves the record held", func(t *testing.T) {
		programs(t, func(t *testing.T, st *memstore.Store) {
			var bad atomic.Bool
			var told []semel.Reconciled
			bad.Store(true)
			events := &semel.Events{Reconciled: func(ev semel.Reconciled) { told = append(told, ev) }}
			e := program(t, st, semel.Options{Events: events}, semel.Operation{Name: "op", Reconcile: func(context.Context, semel.Record) (semel.Settlement, error) {
				panics(&bad)
				return semel.Settlement{Outcome: semel.DispositionCompleted, Result: data("found")}, nil
			}})
			must(t, begin(t, e, call("k")).Hold(t.Context(), "who knows"))
			swept(t, e)
			if len(told) != 1 {
				t.Fatalf("told %+v", told)
			}
			reported(t, told[0].Err, "the reconciler")
			decides(t, e, call("k"), semel.Held)
			bad.Store(false)
			pass(time.Minute)
			swept(t, e)
			decides(t, e, call("k"), semel.Replay)
		})
	})
	t.Run("a compensator leaves the compensation started, and its call held", func(t *testing.T) {
		programs(t, func(t *testing.T, st *memstore.Store) {
			var down, bad atomic.Bool
			var told []semel.Compensated
			down.Store(true)
			events := &semel.Events{Compensated: func(ev semel.Compensated) { told = append(told, ev) }}
			ops := undoing(aborts(&down, func() { panics(&bad) }), semel.Operation{OnFailure: semel.RetryFailure})
			e := program(t, st, semel.Options{Events: events}, ops...)
			unfinished(t, e, "k")
			down.Store(false)
			bad.Store(true)
			pass(time.Minute)
			swept(t, e)
			if len(told) != 1 {
				t.Fatalf("told %+v", told)
			}
			reported(t, told[0].Err, "the compensator")
			if rec, err := e.Lookup(t.Context(), id("k")); err != nil || rec.Compensation.State != store.CompensationStarted {
				t.Errorf("the compensation is %+v", rec.Compensation)
			}
			// A panic proves nothing, so the refund is held until somebody says what it did.
			page, err := e.Search(t.Context(), store.Query{Operation: "refund"})
			if must(t, err); len(page.Records) != 1 || !page.Records[0].Held {
				t.Fatalf("the refund is %+v", page.Records)
			}
			_, err = e.Settle(t.Context(), page.Records[0].ID, semel.Settlement{Outcome: semel.DispositionAborted}, "nothing was paid back")
			must(t, err)
			bad.Store(false)
			pass(time.Hour)
			swept(t, e)
			if rec, err := e.Lookup(t.Context(), id("k")); err != nil || rec.Compensation.State != store.CompensationDone {
				t.Errorf("later the compensation is %+v", rec.Compensation)
			}
		})
	})
	t.Run("an archive keeps the record from being purged", func(t *testing.T) {
		programs(t, func(t *testing.T, st *memstore.Store) {
			var bad atomic.Bool
			bad.Store(true)
			e := program(t, st, semel.Options{Archive: func(context.Context, []semel.Record) error {
				panics(&bad)
				return nil
			}}, semel.Operation{Name: "op", OnExpiry: semel.ArchiveExpired, Window: time.Hour})
			must(t, begin(t, e, call("k")).Complete(t.Context(), data("x")))
			pass(2 * time.Hour)
			n, err := e.Sweep(t.Context())
			reported(t, err, "archive: it")
			if n.Purged != 0 || st.Len() != 1 {
				t.Errorf("swept %+v", n)
			}
			bad.Store(false)
			if n := swept(t, e); n.Purged != 1 {
				t.Errorf("later swept %+v", n)
			}
		})
	})
	t.Run("a witness leaves its record due, and others are swept", func(t *testing.T) {
		programs(t, func(t *testing.T, st *memstore.Store) {
			w := &fragile{}
			e := program(t, st, semel.Options{Witness: w}, semel.Operation{Name: "op", Evidence: semel.EvidenceChanges})
			begin(t, e, call("bad")).Detach()
			begin(t, e, call("good")).Detach()
			pass(time.Hour)
			w.bad.Store(true)
			n, err := e.Sweep(t.Context())
			reported(t, err, "what observes the engine")
			if n.Due != 2 || n.Held != 2 {
				t.Errorf("swept %+v", n)
			}
			if rec, err := e.Lookup(t.Context(), id("good")); err != nil || !rec.Held {
				t.Errorf("the other is %s %q", rec.State, rec.HeldReason)
			}
			w.bad.Store(false)
			swept(t, e)
			decides(t, e, call("bad"), semel.Held)
		})
	})
}

// fragile is a witness that panics about one key.
type fragile struct {
	scribe
	bad atomic.Bool
}

func (f *fragile) Changed(op *semel.Operation, prev, next *semel.Record, change store.Change) []store.Entry {
	if f.bad.Load() && next.ID.Key == "bad" {
		var none *semel.Record
		_ = none.State
	}
	return f.scribe.Changed(op, prev, next, change)
}

// While one engine waits for its reconciler no other asks, however often the operation
// wants to ask.
func TestNobodyAsksWhileAnotherIsAsked(t *testing.T) {
	var asked atomic.Int64
	op := semel.Operation{ReconcileEvery: time.Second, Reconcile: func(context.Context, semel.Record) (semel.Settlement, error) {
		asked.Add(1)
		<-time.After(semel.ReconcileLimit - time.Second)
		return semel.Settlement{}, nil
	}}
	inBubble(t, op, func(t *testing.T, r *rig) {
		other := r.second(t)
		must(t, begin(t, r.Engine, call("k")).Hold(t.Context(), "who knows"))
		for range int(semel.ReconcileLimit/time.Second) - 1 {
			sweepTogether(t, r.Engine, other)
			if n := asked.Load(); n != 1 {
				t.Fatalf("it is asked %d times at once", n)
			}
			pass(time.Second)
		}
		pass(2 * time.Second)
		sweepTogether(t, r.Engine, other)
		if n := asked.Load(); n != 2 {
			t.Errorf("asked %d times after its answer", n)
		}
		pass(semel.ReconcileLimit)
	})
}
