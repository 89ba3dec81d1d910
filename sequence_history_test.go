package semel_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/clause"
	"github.com/semelhq/semel/internal/thorough"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/storetest/faultstore"
)

// sequenceHistory is what a random history of one sequence has shown so far.
type sequenceHistory struct {
	rng     *rand.Rand
	engines []*semel.Engine
	rig     *rig
	now     time.Duration
	// results has the outcome of each number that completed, and until when it is kept.
	results map[uint64]string
	until   map[uint64]time.Duration
	// effects counts the handlers of each number that ran since its outcome was last forgotten,
	// but for those that ended with proof that nothing happened.
	running map[uint64]*semel.Attempt
	newest  uint64 // of which something has happened, and that is known
	runs    int
}

const historyWindow = 2 * time.Hour

// Whatever happens, and whatever the store does: a number with an outcome gets it and never runs
// again, a number below one that had an effect never begins, and one runs at a time.
func TestSequenceHistories(t *testing.T) {
	clause.Proves(t, "MAP-SESS.2", "MAP-SESS.4")
	for round := range thorough.Scaled(300) {
		seed := thorough.Seed() + uint64(round)
		op := semel.Operation{Sequenced: true, Window: historyWindow, OnFailure: semel.RetryFailure, OnAbandoned: semel.RetryAbandoned, Lease: time.Minute}
		if seed%3 == 0 {
			op.OnAbandoned = semel.HoldAbandoned
		}
		inBubble(t, op, func(t *testing.T, r *rig) {
			h := sequenceHistory{
				rng: rand.New(rand.NewPCG(seed, 1)), engines: []*semel.Engine{r.Engine, r.second(t)}, rig: r,
				results: map[uint64]string{}, until: map[uint64]time.Duration{}, running: map[uint64]*semel.Attempt{},
			}
			for step := range 80 {
				if err := h.step(t.Context()); err != nil {
					t.Fatalf("seed %d, step %d: %v", seed, step, err)
				}
			}
			r.faults.Heal()
			for _, a := range h.running {
				a.Detach()
			}
		})
	}
}

func (h *sequenceHistory) step(ctx context.Context) error {
	switch n := h.rng.IntN(20); {
	case n < 1:
		h.rig.faults.Next(faultstore.Apply, []faultstore.Form{faultstore.Applied, faultstore.NotApplied}[h.rng.IntN(2)], 1)
	case n < 3:
		h.pass(time.Duration(h.rng.IntN(40)) * time.Minute)
	case n < 5:
		_, err := h.engines[h.rng.IntN(2)].Sweep(ctx)
		return err
	case n < 9:
		return h.end(ctx)
	case n < 10:
		h.settle(ctx)
	default:
		return h.deliver(ctx)
	}
	return nil
}

func (h *sequenceHistory) pass(d time.Duration) {
	pass(d)
	h.now += d
	for n, until := range h.until {
		if until <= h.now {
			delete(h.results, n)
			delete(h.until, n)
		}
	}
	if len(h.until) == 0 {
		h.newest = 0 // the order may be forgotten
	}
}

func (h *sequenceHistory) deliver(ctx context.Context) error {
	n := 1 + h.rng.Uint64N(10)
	ans, err := h.engines[h.rng.IntN(2)].Begin(ctx, numbered("k", n))
	if err != nil {
		if errors.Is(err, &semel.Error{Code: semel.CodeStoreUnavailable}) {
			return nil
		}
		return err
	}
	was, known := h.results[n]
	switch {
	case ans.Decision == semel.Execute && known:
		return fmt.Errorf("number %d runs again, its outcome %q is kept", n, was)
	case ans.Decision == semel.Execute && n < h.newest:
		return fmt.Errorf("number %d runs after %d", n, h.newest)
	case ans.Decision == semel.Execute:
		for other, a := range h.running {
			if a.Context().Err() == nil && other != n {
				return fmt.Errorf("number %d runs beside %d", n, other)
			}
			if a.Context().Err() == nil {
				return fmt.Errorf("number %d runs twice", n)
			}
		}
		h.running[n] = ans.Attempt
	case known && ans.Decision != semel.Replay:
		return fmt.Errorf("number %d gets %s in place of %q", n, ans.Decision, was)
	case known && string(ans.Record.Result.Data) != was:
		return fmt.Errorf("number %d gets %q in place of %q", n, ans.Record.Result.Data, was)
	}
	return nil
}

// end ends one of the attempts that run.
func (h *sequenceHistory) end(ctx context.Context) error {
	for n, a := range h.running {
		if a.Context().Err() != nil {
			delete(h.running, n)
			continue
		}
		h.runs++
		result := fmt.Sprint("run ", h.runs)
		var err error
		switch how := h.rng.IntN(6); how {
		case 0:
			err = a.Abort(ctx, store.Failure{Code: "nothing"})
		case 1:
			err = a.Fail(ctx, store.Failure{Code: "later"}, semel.Result{})
		case 2:
			a.Detach() // its process dies
		default:
			err = a.Complete(ctx, data(result))
			if err == nil {
				h.results[n], h.until[n], h.newest = result, h.now+historyWindow, max(h.newest, n)
			}
		}
		if err != nil && !errors.Is(err, semel.ErrUnknown) && !errors.Is(err, semel.ErrLeaseLost) {
			return fmt.Errorf("the end of number %d: %w", n, err)
		}
		delete(h.running, n)
		break
	}
	return nil
}

// settle ends what is held, with proof that nothing happened.
func (h *sequenceHistory) settle(ctx context.Context) {
	for n := uint64(1); n <= 10; n++ {
		_, _ = h.engines[0].Settle(ctx, id("k").Numbered(n), semel.Settlement{Outcome: semel.DispositionAborted}, "it never came")
	}
}
