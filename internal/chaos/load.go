//go:build linux

package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/semelhq/semel/internal/stage"
)

// maxUnderWay is how many deliveries may be under way; no further call is made above it.
const maxUnderWay = 1000

// load makes calls until its context ends, each with its deliveries.
func (r *run) load(ctx context.Context) {
	rng := rand.New(rand.NewPCG(r.opts.Seed, 5))
	for n := 0; ctx.Err() == nil; n++ {
		op, at := newCall(rng)
		for _, d := range at {
			j := newJob(rng, op, fmt.Sprintf("k%d", n))
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
