//go:build linux

package chaos

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/semelhq/semel/internal/rig/faultnet"
	"github.com/semelhq/semel/internal/rig/history"
	"github.com/semelhq/semel/internal/rig/stage"
)

// After all other faults have ended, some hit all nodes at once, for as long as it takes to
// notice them. A node then has to take a new call within recoveryLimit.
//
// The clock that the store's time follows leaps further than any before, so that a time which
// has followed one of those would follow this one, too. It stays there for longer than a
// process needs to read it twice. By that clock everything completed until then has expired,
// and the run asks for it afterwards. And the network to the store is a hole: connections are
// reset, and new ones swallowed; or the disk of the embedded store stands still.
const (
	leapTime      = 12 * time.Second
	lastLeap      = 2 * farLeap
	holeTime      = 3 * time.Second
	holeFault     = "link.store.hole"
	stallFault    = "disk.stall"
	recoveryLimit = 5 * time.Second
)

// trial is one of these faults. From its end on a node has to take calls.
type trial struct {
	name  string
	what  string // has happened by its end
	begin func() error
	lasts time.Duration
	end   func() error
}

// Recovery is how long each node took to take a call again.
type Recovery struct {
	After string // what had happened
	Took  []time.Duration
}

// trials are the trials of a run.
func (r *run) trials() (all []trial) {
	nothing := func() error { return nil }
	if set, name := r.storeClock(); set != nil && r.wants(name) {
		all = append(all,
			trial{name, fmt.Sprintf("the clock went ahead by %v", lastLeap), nothing, 0, func() error { return set(lastLeap) }},
			trial{name, "the clock was put right", nothing, leapTime, func() error { return set(0) }})
	}
	if set := r.ground.network; set != nil && r.wants(holeFault) {
		all = append(all, trial{holeFault, fmt.Sprintf("%v without the network to the store", holeTime),
			func() error { set(faultnet.Hole); return nil }, holeTime, func() error { set(faultnet.Healthy); return nil }})
	}
	if stall := r.ground.stall; stall != nil && r.wants(stallFault) {
		all = append(all, trial{stallFault, fmt.Sprintf("%v without the disk", holeTime), func() error { return stall(holeTime) }, 0, nothing})
	}
	return all
}

// wants reports whether the faults of a run have one of this name.
func (r *run) wants(name string) bool { return r.opts.Faults == nil || r.opts.Faults.MatchString(name) }

// storeClock sets the clock that the store's time follows: that of its servers or, where it has
// none, of the only node. It is nil where that can't be set.
func (r *run) storeClock() (set func(time.Duration) error, fault string) {
	if r.ground.network == nil && r.opts.Clocks {
		n := r.nodes[0]
		return func(by time.Duration) error { return n.setClock(by, -n.slept) }, nodeClockFault
	}
	return r.ground.clock, history.ClockFault
}

// recover does all trials.
func (r *run) recover(ctx context.Context) (all []Recovery, err error) {
	for i, x := range r.trials() {
		took, err := r.try(ctx, i, x)
		if err != nil {
			return nil, err
		}
		all = append(all, Recovery{x.what, took})
	}
	return all, nil
}

// try does one, and measures how long each node takes. There are calls at each node all the
// time, so that it uses its connections and reads its clock.
func (r *run) try(ctx context.Context, number int, x trial) ([]time.Duration, error) {
	took := make([]time.Duration, len(r.nodes))
	over := make(chan struct{})
	var began time.Time // when over was closed
	var callers sync.WaitGroup
	for i := range r.nodes {
		callers.Go(func() {
			limited, cancel := context.WithTimeout(ctx, x.lasts+settled)
			defer cancel()
			for n := 0; limited.Err() == nil; n++ {
				granted := r.takesACall(limited, i+1, fmt.Sprintf("after-%d-%d-%d", number, i+1, n))
				select {
				case <-over:
					if took[i] = time.Since(began); granted {
						return
					}
				default:
					if granted {
						stage.Pause(limited, 100*time.Millisecond)
					}
				}
			}
		})
	}
	r.told(x.name, x.name+" begins at the end of the run")
	err := x.begin()
	stage.Pause(ctx, x.lasts)
	err = errors.Join(err, x.end())
	began = time.Now()
	close(over)
	r.told(x.name, x.name+": "+x.what)
	callers.Wait()
	return took, err
}

// takesACall begins a new call at a node, and reports whether it was granted. If so, it is
// completed.
func (r *run) takesACall(ctx context.Context, node int, key string) bool {
	a := r.completing(10, delivery{op: opOnce, key: key, payload: 1, holder: r.here.id()})
	got := a.begin(&a.d, node)
	if got.word != history.Execute {
		stage.Pause(ctx, 10*time.Millisecond)
		return false
	}
	a.execute(ctx, got)
	return true
}
