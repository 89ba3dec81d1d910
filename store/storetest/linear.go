package storetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/clause"
	"github.com/semelhq/semel/store/storetest/faultstore"
)

// undecided is how many rounds may be without a verdict. A store that answers slowly
// leaves a round with so many unknown results that no search ends in time; such a
// round proves nothing, and another one is played instead.
const undecided = 3

// checkPatience is how long the search for a linearization may take. Histories
// are short enough for milliseconds.
const checkPatience = 20 * time.Second

var linearCases = []testCase{
	{
		name: "concurrent histories of one identity are linearizable, also while calls fail in every form",
		why:  ruleLinear + " " + ruleUnknown,
		run: func(t *testing.T, env Env) {
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
		},
	},
}

// report is what a check did.
type report struct {
	ops, unknown int
	undecided    int // rounds without a verdict
	faults       map[faultstore.Fault]int
}

// The operations on the register that a store keeps per identity: its value is
// the revision.
type (
	regInput struct {
		id     semel.ID
		kind   faultstore.Verb // Apply, Get or Purge
		expect semel.Revision
		write  semel.Revision
	}
	regOutput struct {
		unknown bool
		applied bool // or purged
		current semel.Revision
	}
)

// register is the sequential meaning of Apply, Get and Purge.
var register = porcupine.Model{
	Partition: func(ops []porcupine.Operation) [][]porcupine.Operation {
		return partition(ops, func(op porcupine.Operation) semel.ID { return op.Input.(regInput).id })
	},
	Init: func() any { return semel.Revision{} },
	Step: func(state, input, output any) (bool, any) {
		cur, in, out := state.(semel.Revision), input.(regInput), output.(regOutput)
		hit := cur == in.expect
		after := cur
		switch {
		case in.kind == faultstore.Apply && hit:
			after = in.write
		case in.kind == faultstore.Purge && hit:
			after = semel.Revision{}
		}
		switch {
		case out.unknown:
			// It has until the end of time to happen, which includes never.
			return true, after
		case in.kind == faultstore.Get:
			return out.current == cur, cur
		case in.kind == faultstore.Purge:
			return out.applied == hit, after
		default:
			return out.applied == hit && out.current == after, after
		}
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%v -> %v", input, output) },
}

// partition splits a history by what names its independent parts.
func partition[K comparable](ops []porcupine.Operation, name func(porcupine.Operation) K) [][]porcupine.Operation {
	parts := map[K][]porcupine.Operation{}
	for _, op := range ops {
		parts[name(op)] = append(parts[name(op)], op)
	}
	var all [][]porcupine.Operation
	for _, part := range parts {
		all = append(all, part)
	}
	return all
}

// recorder collects a concurrent history. Its time is a count of calls and
// returns, which orders them as they happened.
type recorder struct {
	clock atomic.Int64
	mu    sync.Mutex
	ops   []porcupine.Operation
}

func (r *recorder) call() int64 { return r.clock.Add(1) }

// done records an operation that was called at a time. One whose result is
// unknown has not returned.
func (r *recorder) done(client int, called int64, input, output any, unknown bool) {
	returned := r.clock.Add(1)
	if unknown {
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

// linearize runs rounds of concurrent operations on few identities and checks
// that each could have happened in one order.
func linearize(ctx context.Context, inner semel.Store, seed uint64, rounds int) (report, error) {
	s, control := faultstore.New(inner, &faultstore.Options{Seed: seed, Rates: everyForm(0.04), Delay: 3 * time.Millisecond})
	defer control.Settle()
	var rep report
	for round := 0; round < rounds+rep.undecided; round++ {
		var rec recorder
		var wg sync.WaitGroup
		for client := range 6 {
			random := rand.New(rand.NewPCG(seed, uint64(round*100+client)))
			wg.Go(func() { hammer(ctx, inner, s, &rec, random, client, fmt.Sprintf("%d-%d", seed, round)) })
		}
		wg.Wait()
		rep.ops += len(rec.ops)
		for _, op := range rec.ops {
			if op.Output.(regOutput).unknown {
				rep.unknown++
			}
		}
		switch result := porcupine.CheckOperationsTimeout(register, rec.ops, checkPatience); result {
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

// hammer is one client: it writes over what it has seen, sends writes of
// unknown result again as the engine does, reads, and purges, on s or where that
// cannot fail on the inner store.
func hammer(ctx context.Context, inner, s semel.Store, rec *recorder, random *rand.Rand, client int, name string) {
	seen := map[semel.ID]semel.Revision{}
	var unresolved []semel.Write
	purger, canPurge := s.(semel.PurgeStore)
	_, isLocal := inner.(semel.LocalStore)
	send := func(w semel.Write) {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
		defer cancel()
		s := s
		if isLocal && random.IntN(3) == 0 {
			s = local{inner, inner.(semel.LocalStore)} // which can't fail
		}
		at := rec.call()
		cur, applied, err := s.Apply(ctx, w)
		rec.done(client, at, regInput{w.Record.ID, faultstore.Apply, w.Expect, w.Record.Revision}, regOutput{err != nil, applied, cur.Revision}, err != nil)
		if err != nil {
			unresolved = append(unresolved, w)
			return
		}
		seen[w.Record.ID] = cur.Revision
	}
	for range 12 {
		id := key(fmt.Sprintf("%s-%d", name, random.IntN(2)))
		switch p := random.IntN(10); {
		case p < 5:
			w := semel.Write{Record: claimed(id, 1), Expect: seen[id]}
			if random.IntN(8) == 0 {
				w.Expect = semel.Revision{}
			}
			send(w)
		case p < 6 && len(unresolved) > 0:
			w := unresolved[0]
			unresolved = unresolved[1:]
			send(w)
		case p < 9 || !canPurge:
			ctx, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
			at := rec.call()
			cur, err := s.Get(ctx, id)
			cancel()
			if err != nil && !errors.Is(err, semel.ErrNotFound) {
				continue // a read that failed says nothing and changes nothing
			}
			rec.done(client, at, regInput{id: id, kind: faultstore.Get}, regOutput{current: cur.Revision}, false)
			seen[id] = cur.Revision
		default:
			ctx, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
			at := rec.call()
			n, err := purger.Purge(ctx, []semel.Ref{{ID: id, Revision: seen[id]}})
			cancel()
			if seen[id].IsZero() {
				continue // names no version
			}
			rec.done(client, at, regInput{id: id, kind: faultstore.Purge, expect: seen[id]}, regOutput{unknown: err != nil, applied: n == 1}, err != nil)
			delete(seen, id)
		}
	}
}
