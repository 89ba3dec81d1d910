package check

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// The size of a history, how many of its deliveries are cut off, and how long sending it and the
// search for an order may take.
const (
	historyKeys, historySteps, cutEach = 100, 25, 8
	storming, searching                = 20 * time.Second, 10 * time.Second
)

// step is one delivery of a history. settled says that somebody had the answer when it was sent.
type step struct {
	key     int
	settled bool
	answer  Answer
}

// history lets clients deliver calls of a hundred keys in any order, and be cut off. Then it looks
// for an order of all deliveries, each between its request and its answer, in which each key is
// executed once and everybody gets that answer (linearizability).
func (j *judge) history(ctx context.Context) {
	const id = "storm.history"
	if j.state("gone") == Red {
		j.Unseen(id, "not tried, because gone is red")
		return
	}
	before := j.effects(ctx, 0)
	calls := make([]call, historyKeys)
	for k := range calls {
		calls[k] = j.call("")
	}
	steps := j.deliverAll(ctx, calls)
	fault, answered := "", 0
	for k := range calls {
		s := step{key: k, answer: j.settle(ctx, calls[k])}
		if steps = append(steps, s); s.answer.OK() {
			answered++
		}
	}
	if n := j.effects(ctx, before+answered) - before; j.counted && (n > historyKeys || n < answered) {
		fault = fmt.Sprintf("%d effects of %d keys, of which %d were answered, in %d deliveries by %d clients", n, historyKeys, answered, len(steps), crowd)
	}
	for _, part := range j.operations(steps) {
		switch key := calls[part[0].Input.(step).key].key; porcupine.CheckOperationsTimeout(once, part, searching) {
		case porcupine.Illegal:
			j.exchanges = slices.DeleteFunc(j.exchanges, func(x Exchange) bool { return x.key != key })
			j.fail(id, "no order explains what %d clients saw of the key %s. %s", crowd, key, fault)
			return
		case porcupine.Unknown:
			j.Unseen(id, "the search for an order takes too long")
			return
		}
	}
	j.judge(id, fault)
}

// deliverAll lets the clients deliver.
func (j *judge) deliverAll(ctx context.Context, calls []call) (steps []step) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	deadline := time.Now().Add(storming)
	for client := range crowd {
		rnd := rand.New(rand.NewPCG(j.opts.Seed, uint64(client)))
		wg.Go(func() {
			for n := 0; n < historySteps && ctx.Err() == nil && time.Now().Before(deadline); n++ {
				s, at, after := step{key: rnd.IntN(len(calls))}, nowhere, lingering>>rnd.IntN(6)
				if rnd.IntN(cutEach) == 0 {
					at = afterRequest
				}
				s.answer = j.deliverCut(ctx, calls[s.key], at, after)
				mu.Lock()
				steps = append(steps, s)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return steps
}

// What a delivery got, if not an outcome: nothing, so that it may have run, now or later; a refusal
// that says nothing about the key; and one because another delivery is running.
const lost, refused, running = "lost", "refused", "in flight"

// operations turns the deliveries of each key into operations of a register that is written once.
func (j *judge) operations(steps []step) [][]porcupine.Operation {
	settled := map[int]time.Time{}
	slices.SortFunc(steps, func(a, b step) int { return a.answer.ended.Compare(b.answer.ended) })
	parts := map[int][]porcupine.Operation{}
	for client, s := range steps {
		a := s.answer
		at, answered := settled[s.key]
		s.settled = answered && at.Before(a.began)
		op := porcupine.Operation{ClientId: client, Input: s, Call: a.began.Sub(j.began).Nanoseconds(), Return: a.ended.Sub(j.began).Nanoseconds()}
		switch {
		case a.Err != nil:
			op.Output, op.Return = lost, math.MaxInt64
		case j.inFlight(a):
			op.Output = running
		case j.later(a) || a.Status >= 500:
			op.Output = refused
		default:
			op.Output = fmt.Sprint("outcome ", a.Status, " ", a.Body)
			if !answered {
				settled[s.key] = a.ended
			}
		}
		parts[s.key] = append(parts[s.key], op)
	}
	return slices.Collect(maps.Values(parts))
}

// once is the register of a key: free, claimed, or with the outcome that somebody has seen.
var once = (&porcupine.NondeterministicModel{
	Init: func() []any { return []any{"free"} },
	Step: func(state, in, out any) []any {
		switch s := in.(step); {
		case out == lost && state == "free":
			return []any{"free", "claimed"}
		case out == lost, out == refused, out == running && state != "free" && !s.settled:
			return []any{state}
		case out != running && (state == "free" || state == "claimed" || state == out):
			return []any{out}
		}
		return nil
	},
}).ToModel()
