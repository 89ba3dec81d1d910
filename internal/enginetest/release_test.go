package enginetest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

func TestReleaseOfAHeldRecord(t *testing.T) {
	release := semel.Settlement{Outcome: semel.DispositionAbandoned}
	t.Run("it may run again although nobody knows, under a higher fence", func(t *testing.T) {
		var told []semel.Ended
		events := &semel.Events{Ended: func(ev semel.Ended) { told = append(told, ev) }}
		inBubbleWith(t, semel.Options{Events: events}, semel.Operation{}, func(t *testing.T, r *rig) {
			first := begin(t, r.Engine, call("k"))
			must(t, first.Hold(t.Context(), "who knows"))
			stale := attach(t, r.Engine, "k", first.Fence())
			pass(time.Millisecond)
			rec, err := r.Settle(t.Context(), id("k"), release, "ticket 7")
			must(t, err)
			if rec.State != semel.Failed || rec.Disposition != semel.DispositionAbandoned || rec.Held {
				t.Errorf("released it is %+v", rec)
			}
			last := told[len(told)-1]
			if last.By != "operator" || last.Reason != "ticket 7" || last.Disposition != semel.DispositionAbandoned {
				t.Errorf("told %+v", last)
			}
			second := begin(t, r.Engine, call("k"))
			if second.Number() != 2 || second.Fence() <= first.Fence() {
				t.Errorf("attempt %d has fence %d after %d", second.Number(), second.Fence(), first.Fence())
			}
			wantCode(t, stale.Complete(t.Context(), data("stale")), semel.CodeLeaseLost)
			must(t, second.Complete(t.Context(), data("done")))
		})
	})
	t.Run("an open effect forbids it until it is said what became of it", func(t *testing.T) {
		inBubble(t, semel.Operation{}, func(t *testing.T, r *rig) {
			heldOnCharge(t, r, "k")
			before, err := r.Lookup(t.Context(), id("k"))
			must(t, err)
			_, err = r.Settle(t.Context(), id("k"), release, "test")
			wantCode(t, err, semel.CodeIllegalTransition)
			after, err := r.Lookup(t.Context(), id("k"))
			must(t, err)
			if after.Revision != before.Revision {
				t.Error("the record was changed")
			}
			with := release
			with.Effects = []store.EffectFinding{{Name: "charge", State: store.EffectConfirmed, Result: data("7")}}
			_, err = r.Settle(t.Context(), id("k"), with, "test")
			must(t, err)
			ans, err := r.Do(t.Context(), call("k"), func(ctx context.Context, x semel.Execution) (semel.Result, error) {
				n, err := semel.Effect(ctx, x, "charge", func(context.Context, string) (int, error) {
					t.Error("the charge was made again")
					return 0, nil
				})
				return data(string(rune('0' + n))), err
			})
			if err != nil || string(ans.Record.Result.Data) != "7" {
				t.Errorf("the next run gave %q, %v", ans.Record.Result.Data, err)
			}
		})
	})
}

// sweepTogether lets engines sweep at the same time.
func sweepTogether(t *testing.T, engines ...*semel.Engine) {
	t.Helper()
	var wg sync.WaitGroup
	for _, e := range engines {
		for range 3 {
			wg.Go(func() {
				if _, err := e.Sweep(t.Context()); err != nil && !errors.Is(err, errCrashed) {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	synctest.Wait() // for reconcilers, which are asked beside sweeps
}

var errCrashed = errors.New("crashed")

func TestOneEngineAsksTheReconciler(t *testing.T) {
	t.Run("of all engines that sweep, one asks in each period", func(t *testing.T) {
		clause.Proves(t, "IDS-XI.S4")
		var asked atomic.Int64
		op := semel.Operation{ReconcileEvery: time.Minute, Reconcile: func(ctx context.Context, _ semel.Record) (semel.Settlement, error) {
			asked.Add(1)
			<-time.After(time.Second) // the others sweep meanwhile
			return semel.Settlement{}, nil
		}}
		inBubble(t, op, func(t *testing.T, r *rig) {
			other := r.second(t)
			heldOnCharge(t, r, "k")
			for period := range int64(5) {
				sweepTogether(t, r.Engine, other)
				sweepTogether(t, r.Engine, other)
				if n := asked.Load(); n != period+1 {
					t.Fatalf("it was asked %d times in %d periods", n, period+1)
				}
				pass(time.Minute)
			}
		})
	})
	t.Run("when the one that asks crashes another asks in the next period", func(t *testing.T) {
		var asked atomic.Int64
		op := semel.Operation{ReconcileEvery: time.Minute, Reconcile: func(ctx context.Context, _ semel.Record) (semel.Settlement, error) {
			if asked.Add(1) == 1 {
				return semel.Settlement{}, errCrashed // nothing of it is written
			}
			return semel.Settlement{Outcome: semel.DispositionCompleted, Result: data("found")}, nil
		}}
		inBubble(t, op, func(t *testing.T, r *rig) {
			other := r.second(t)
			heldOnCharge(t, r, "k")
			sweepTogether(t, r.Engine)
			pass(time.Minute - time.Second)
			sweepTogether(t, other)
			if n := asked.Load(); n != 1 {
				t.Fatalf("it was asked %d times in the first period", n)
			}
			pass(2 * time.Second)
			sweepTogether(t, other)
			if ans := decides(t, other, call("k"), semel.Replay); string(ans.Record.Result.Data) != "found" || asked.Load() != 2 {
				t.Errorf("asked %d times; duplicates get %q", asked.Load(), ans.Record.Result.Data)
			}
		})
	})
	t.Run("an answer that comes when the record was settled otherwise changes nothing", func(t *testing.T) {
		var r *rig
		op := semel.Operation{ReconcileEvery: time.Minute, Reconcile: func(ctx context.Context, held semel.Record) (semel.Settlement, error) {
			_, err := r.Settle(ctx, held.ID, semel.Settlement{Outcome: semel.DispositionCompleted, Result: data("by hand")}, "faster")
			return semel.Settlement{Outcome: semel.DispositionAborted}, err
		}}
		inBubble(t, op, func(t *testing.T, is *rig) {
			r = is
			heldOnCharge(t, r, "k")
			sweep(t, r, semel.Swept{Due: 1, Reconciled: 1})
			if ans := decides(t, r.Engine, call("k"), semel.Replay); string(ans.Record.Result.Data) != "by hand" {
				t.Errorf("duplicates get %q", ans.Record.Result.Data)
			}
		})
	})
}

// A claim that is given back is told of, and wakes those who wait for its outcome.
func TestAReleasedClaimIsTold(t *testing.T) {
	var ended []semel.Ended
	events := &semel.Events{Ended: func(e semel.Ended) { ended = append(ended, e) }}
	inBubbleWith(t, semel.Options{Events: events}, semel.Operation{}, func(t *testing.T, r *rig) {
		a := begin(t, r.Engine, call("k"))
		released, err := a.Release(t.Context())
		if must(t, err); !released {
			t.Fatal("not released")
		}
		if len(ended) != 1 || ended[0].Disposition != semel.DispositionAborted || ended[0].Fence != a.Fence() {
			t.Errorf("told of %+v", ended)
		}
		wantCode(t, a.Complete(t.Context(), data("x")), semel.CodeAlreadyEnded)
	})
}

// readTogether is a store from which the first two sweeps read before either of them writes.
type readTogether struct {
	*reader
	both   sync.WaitGroup
	sweeps atomic.Int64
}

func (s *readTogether) Extras() store.Extras { return store.Extras{Due: s} }

func (s *readTogether) Due(ctx context.Context, q store.DueQuery) (store.DuePage, error) {
	page, err := s.reader.Due(ctx, q)
	if s.sweeps.Add(1) <= 2 {
		s.both.Done()
		s.both.Wait()
	}
	return page, err
}

// Two engines have read that a record is due, and both try to write that they take it: only the
// one that succeeds asks.
func TestTheEngineThatLosesTheRecordDoesNotAsk(t *testing.T) {
	programs(t, func(t *testing.T, mem *memstore.Store) {
		st := &readTogether{reader: newReader(mem)}
		st.both.Add(2)
		var asked atomic.Int64
		op := semel.Operation{Name: "op", ReconcileEvery: time.Minute, Reconcile: func(context.Context, semel.Record) (semel.Settlement, error) {
			asked.Add(1)
			return semel.Settlement{}, nil
		}}
		a, b := program(t, st, semel.Options{}, op), program(t, st, semel.Options{Node: "second"}, op)
		must(t, begin(t, a, call("k")).Hold(t.Context(), "lost"))
		var reconciled atomic.Int64
		var sweeps sync.WaitGroup
		for _, e := range []*semel.Engine{a, b} {
			sweeps.Go(func() {
				n, err := e.Sweep(t.Context())
				if err != nil || n.Due != 1 || n.Waiting != 0 {
					t.Errorf("swept %+v, %v", n, err)
				}
				reconciled.Add(int64(n.Reconciled))
			})
		}
		sweeps.Wait()
		synctest.Wait()
		if asked.Load() != 1 || reconciled.Load() != 1 {
			t.Errorf("asked %d times, and %d are counted", asked.Load(), reconciled.Load())
		}
	})
}
