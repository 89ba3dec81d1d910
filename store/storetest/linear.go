package storetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/storetest/faultstore"
)

// undecided is how many rounds may end without a verdict. If a store answers slowly, a round
// may have so many unknown results that the search takes too long. Such a round proves nothing,
// and the test plays another one.
const undecided = 3

// checkPatience is how long the search for a linearization may take. It usually takes
// milliseconds.
const checkPatience = 20 * time.Second

var linearCases = []testCase{
	{"concurrent histories of one identity are linearizable, also while calls fail in every form", ruleLinear + " " + ruleUnknown, func(t *testing.T, env Env) {
		clause.Proves(t, "CORE-CONC.1", "IDS-VIII.1")
		start := seed()
		t.Logf("repeat with -storetest.seed=%d", start)
		rep, err := linearize(t.Context(), env.Store, start, 30)
		t.Logf("%d operations, %d of them with an unknown result, %d rounds without a verdict; faults fired: %v", rep.ops, rep.unknown, rep.undecided, rep.faults)
		if err != nil {
			t.Fatal(err)
		}
		if rep.unknown == 0 || len(rep.faults) == 0 {
			t.Fatal("no fault fired, so nothing is proved")
		}
	}},
}

// report says what a check did.
type report struct {
	ops, unknown int
	undecided    int // rounds without a verdict
	faults       map[faultstore.Fault]int
}

// The operations on the register that a store has for each identity. Its value is the revision.
// Package history checks calls, which engines build from these operations; here the store is
// checked without any engine.
type (
	regInput struct {
		id     semel.ID
		kind   faultstore.Verb // Apply, Get or Purge
		expect store.Revision
		write  store.Revision
	}
	regOutput struct {
		unknown bool
		applied bool // or purged
		current store.Revision
	}
)

// register is the sequential specification of Apply, Get and Purge.
var register = porcupine.Model{
	Partition: func(ops []porcupine.Operation) [][]porcupine.Operation {
		parts := map[semel.ID][]porcupine.Operation{}
		for _, op := range ops {
			id := op.Input.(regInput).id
			parts[id] = append(parts[id], op)
		}
		return slices.Collect(maps.Values(parts))
	},
	Init: func() any { return store.Revision{} },
	Step: func(state, input, output any) (bool, any) {
		cur, in, out := state.(store.Revision), input.(regInput), output.(regOutput)
		hit := cur == in.expect
		after := cur
		switch {
		case in.kind == faultstore.Apply && hit:
			after = in.write
		case in.kind == faultstore.Purge && hit:
			after = store.Revision{}
		}
		switch {
		case out.unknown:
			// It may happen at any later time, or never.
			return true, after
		case in.kind == faultstore.Get:
			return out.current == cur, cur
		case in.kind == faultstore.Purge:
			return out.applied == hit, after
		default:
			return out.applied == hit && out.current == after, after
		}
	},
}

// recorder collects a concurrent history. Its clock counts calls and returns.
type recorder struct {
	clock atomic.Int64
	mu    sync.Mutex
	ops   []porcupine.Operation
}

func (r *recorder) call() int64 { return r.clock.Add(1) }

// done records an operation. If its result is unknown, it never returns.
func (r *recorder) done(client int, called int64, input regInput, output regOutput) {
	returned := r.clock.Add(1)
	if output.unknown {
		returned = math.MaxInt64
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ops = append(r.ops, porcupine.Operation{ClientId: client, Input: input, Call: called, Output: output, Return: returned})
}

// everyForm fails every verb in every form.
func everyForm(rate float64) map[faultstore.Fault]float64 {
	rates := map[faultstore.Fault]float64{}
	for _, v := range []faultstore.Verb{faultstore.Apply, faultstore.Get, faultstore.Purge} {
		rates[faultstore.Fault{Verb: v, Form: faultstore.NotApplied}] = rate
		rates[faultstore.Fault{Verb: v, Form: faultstore.Applied}] = rate
		rates[faultstore.Fault{Verb: v, Form: faultstore.Late}] = rate
		rates[faultstore.Fault{Verb: v, Form: faultstore.Hang}] = rate / 4
		rates[faultstore.Fault{Verb: v, Form: faultstore.Slow}] = 0.5
	}
	return rates
}

// linearize runs rounds of concurrent operations on a few identities, and checks that some
// order explains the results of each round.
func linearize(ctx context.Context, inner semel.Store, seed uint64, rounds int) (report, error) {
	s, control := faultstore.New(inner, &faultstore.Options{Seed: seed, Rates: everyForm(0.04), Delay: 3 * time.Millisecond})
	defer control.Settle()
	var rep report
	patience := 10 * time.Millisecond
	for round := 0; round < rounds+rep.undecided; round++ {
		var rec recorder
		var wg sync.WaitGroup
		for client := range 6 {
			random := rand.New(rand.NewPCG(seed, uint64(round*100+client)))
			wg.Go(func() { runClient(ctx, inner, s, &rec, random, client, fmt.Sprintf("%d-%d", seed, round), patience) })
		}
		wg.Wait()
		rep.ops += len(rec.ops)
		unknown := 0
		for _, op := range rec.ops {
			if op.Output.(regOutput).unknown {
				unknown++
			}
		}
		if rep.unknown += unknown; unknown > len(rec.ops)/2 {
			patience = min(2*patience, time.Second) // more than the faults: the machine is busy
		}
		switch porcupine.CheckOperationsTimeout(register, rec.ops, checkPatience) {
		case porcupine.Illegal:
			rep.faults = control.Fired()
			return rep, fmt.Errorf("-storetest.seed=%d: the history of round %d is not linearizable", seed, round)
		case porcupine.Unknown:
			if rep.undecided++; rep.undecided > undecided {
				return rep, fmt.Errorf("-storetest.seed=%d: the histories of %d rounds could not be checked within %v each", seed, rep.undecided, checkPatience)
			}
		}
	}
	rep.faults = control.Fired()
	return rep, nil
}

// runClient is one client: it reads, purges, writes over the versions that it has seen, and, like
// the engine, resends writes with unknown results. No call takes longer than patience.
func runClient(ctx context.Context, inner, s semel.Store, rec *recorder, random *rand.Rand, client int, name string, patience time.Duration) {
	seen := map[semel.ID]store.Revision{}
	var unresolved []store.Write
	purger := s.Extras().Purge
	send := func(w store.Write) {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		at := rec.call()
		cur, applied, err := s.Apply(ctx, w)
		rec.done(client, at, regInput{w.Record.ID, faultstore.Apply, w.Expect, w.Record.Revision}, regOutput{err != nil, applied, revisionOf(cur)})
		if err != nil {
			unresolved = append(unresolved, w)
			return
		}
		seen[w.Record.ID] = revisionOf(cur)
	}
	for range 12 {
		id := key(fmt.Sprintf("%s-%d", name, random.IntN(2)))
		switch p := random.IntN(10); {
		case p < 5:
			w := store.Write{Record: new(claimed(id, 1)), Expect: seen[id]}
			if random.IntN(8) == 0 {
				w.Expect = store.Revision{}
			}
			send(w)
		case p < 6 && len(unresolved) > 0:
			w := unresolved[0]
			unresolved = unresolved[1:]
			send(w)
		case p < 9 || purger == nil:
			ctx, cancel := context.WithTimeout(ctx, patience)
			at := rec.call()
			cur, err := s.Get(ctx, id)
			cancel()
			if err != nil && !errors.Is(err, semel.ErrNotFound) {
				continue // a failed read proves nothing and changes nothing
			}
			rec.done(client, at, regInput{id: id, kind: faultstore.Get}, regOutput{current: revisionOf(cur)})
			seen[id] = revisionOf(cur)
		default:
			ctx, cancel := context.WithTimeout(ctx, patience)
			at := rec.call()
			n, err := purger.Purge(ctx, []store.Ref{{ID: id, Revision: seen[id]}})
			cancel()
			if seen[id].IsZero() {
				continue // names no version
			}
			rec.done(client, at, regInput{id: id, kind: faultstore.Purge, expect: seen[id]}, regOutput{unknown: err != nil, applied: n == 1})
			delete(seen, id)
		}
	}
}
