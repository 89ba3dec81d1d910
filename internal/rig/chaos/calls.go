//go:build linux

package chaos

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/semelhq/semel/internal/rig/history"
	"github.com/semelhq/semel/internal/rig/stage"
)

// maxUnderWay is how many deliveries may be under way; above it the run starts no further call.
const maxUnderWay = 1000

// load makes calls until its context ends, each with its deliveries.
func (r *run) load(ctx context.Context) {
	rng := rand.New(rand.NewPCG(r.opts.Seed, 5))
	for n := 0; ctx.Err() == nil; n++ {
		for _, p := range newCall(rng, n) {
			j, d := p.job, p.at
			if r.opts.Brief {
				d, j.Before, j.After = min(d, lease), min(j.Before, lease/6), min(j.After, lease/6)
			}
			r.pending.Add(1)
			time.AfterFunc(d, func() { r.deliver(j) })
		}
		stage.Pause(ctx, time.Duration(rng.ExpFloat64()*float64(time.Second)/r.opts.Rate))
		for r.pending.Load() > maxUnderWay && ctx.Err() == nil {
			stage.Pause(ctx, 50*time.Millisecond)
		}
	}
}

// deliver gives a delivery to any worker.
func (r *run) deliver(j job) {
	j.ID = int(r.deliveries.Add(1))
	if j.End == history.Reject && !mayRefuse(j.Op, r.earlier.Load()) {
		j.End = history.Complete
	}
	to := rand.New(rand.NewPCG(j.Seed, 6)).IntN(len(r.crews) + 1)
	if to < len(r.crews) && r.crews[to].give(j) {
		return
	}
	// One worker is in this process, which never dies.
	go func() {
		defer r.ended()
		r.here.deliver(context.Background(), j)
	}()
}

// again repeats a delivery that a worker didn't end, as another delivery.
func (r *run) again(j job) {
	j.Seed = rand.New(rand.NewPCG(j.Seed, 7)).Uint64()
	within := 2 * lease
	if r.opts.Brief {
		within = lease / 6
	}
	time.AfterFunc(time.Duration(j.Seed%uint64(within)), func() { r.deliver(j) })
}

// ended notes that a delivery has.
func (r *run) ended() { r.pending.Add(-1) }

// settle asks every node about every call until the answer is final. If a call may still run it
// is run, because the asker is a client like all others. After the limit it doesn't repeat a
// question that nobody can answer yet, but on a busy machine there may be calls by then that
// nobody has asked about.
func (r *run) settle(ctx context.Context, limit time.Duration) {
	end := time.Now().Add(limit)
	sequences := make(chan []string)
	var askers sync.WaitGroup
	for range 16 {
		askers.Go(func() {
			for keys := range sequences {
				for _, key := range keys { // a number may wait for the one before it
					for node := range r.here.nodes {
						r.settleKey(ctx, key, node+1, end)
					}
				}
			}
		})
	}
	for _, keys := range r.log.Sequences() {
		sequences <- keys
	}
	close(sequences)
	askers.Wait()
}

// completing is a delivery of this process, which completes the call if it executes it.
func (r *run) completing(seed uint64, d delivery) *attempt {
	return &attempt{worker: r.here, made: map[int64]string{}, rng: rand.New(rand.NewPCG(r.opts.Seed, seed)), job: job{End: history.Complete}, d: d}
}

// settleKey asks one node about one call, again until the end.
func (r *run) settleKey(ctx context.Context, name string, node int, end time.Time) {
	over := func() bool { return ctx.Err() != nil || time.Now().After(end) }
	op, key, _ := strings.Cut(name, "/")
	key, number := history.CutNumber(key)
	a := r.completing(8, delivery{op: op, key: key, number: number, payload: 1, final: true})
	for {
		got := a.deliverTo(node)
		switch got.word {
		case history.Execute:
			a.execute(ctx, got)
			continue
		case history.Conflict:
			if a.d.payload++; a.d.payload <= 2 {
				continue
			}
			return
		case history.Held:
			if rules[op].Asked && len(r.log.Effects(name)) > 0 && !over() {
				break // the reconciler will settle it
			}
			r.log.Add(history.Event{
				At: now(), Kind: history.Reason, Key: name, Node: node, Final: true, Text: r.here.heldReason(&a.d, node, got.link),
			})
			return
		case history.Replay, history.Answered, history.Gone, history.Superseded, history.Gap, history.OtherCaller:
			return
		}
		if over() {
			return
		}
		stage.Pause(ctx, max(got.after/4, 200*time.Millisecond))
	}
}
