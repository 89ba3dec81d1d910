//go:build linux

package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/semelhq/semel/internal/faultnet"
	"github.com/semelhq/semel/internal/history"
)

// After all other faults have ended, the network to the store is a hole for holeTime, for all
// nodes at once: their connections are reset, and new ones swallowed. A node then has to take a
// new call within recoveryLimit after the network works again.
const (
	holeTime      = 3 * time.Second
	recoveryLimit = 5 * time.Second
	holeFault     = "link.store.hole"
)

// recover measures that for each node, in the order of the nodes. There are calls at each node
// all the time, so that it uses its connections.
func (r *run) recover(ctx context.Context) []time.Duration {
	if r.stage.network == nil || r.opts.Faults != nil && !r.opts.Faults.MatchString(holeFault) {
		return nil
	}
	took := make([]time.Duration, len(r.nodes))
	healed := make(chan struct{})
	var began time.Time // when healed was closed
	var callers sync.WaitGroup
	for i := range r.nodes {
		callers.Go(func() {
			limited, cancel := context.WithTimeout(ctx, holeTime+settled)
			defer cancel()
			for n := 0; limited.Err() == nil; n++ {
				granted := r.takesACall(limited, i+1, n)
				select {
				case <-healed:
					if took[i] = time.Since(began); granted {
						return
					}
				default:
				}
			}
		})
	}
	r.told(holeFault, fmt.Sprintf("%s begins: all nodes for %v", holeFault, holeTime))
	r.stage.network(faultnet.Hole)
	pause(ctx, holeTime)
	r.stage.network(faultnet.Healthy)
	began = time.Now()
	close(healed)
	r.told(holeFault, holeFault+" ends: all nodes")
	callers.Wait()
	return took
}

// takesACall begins a new call at a node, and reports whether it was granted. If so, it is
// completed.
func (r *run) takesACall(ctx context.Context, node, n int) bool {
	a := &attempt{worker: r.here, made: map[int64]string{}, rng: rand.New(rand.NewPCG(r.opts.Seed, uint64(n))), job: job{End: history.Complete}}
	a.d = delivery{op: opOnce, key: fmt.Sprintf("after-%d-%d", node, n), payload: 1, holder: r.here.id()}
	got := a.begin(&a.d, node)
	if got.word != history.Execute {
		pause(ctx, 10*time.Millisecond)
		return false
	}
	a.execute(ctx, got)
	return true
}
