//go:build linux

package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel/internal/rig/faultnet"
	"github.com/semelhq/semel/internal/rig/history"
	"github.com/semelhq/semel/internal/rig/stage"
)

// Options of a run.
type Options struct {
	Store    string // one of Stores
	Seed     uint64
	Duration time.Duration // of load and faults
	Nodes    int           // if the store allows several
	Rate     float64       // calls a second, each with several deliveries
	// Binary is the program that the nodes run, as Build makes it. Clocks says that it
	// was built so that its clocks can be moved.
	Binary string
	Clocks bool
	// Earlier is the program that the nodes run at first, if it isn't Binary. Under load, they
	// are replaced.
	Earlier string
	// Faults selects faults by their names; nil is all.
	Faults *regexp.Regexp
	// Brief runs have work and faults that last a moment, and end soon.
	Brief bool
	// Tell, if it isn't nil, is called with the progress.
	Tell func(text string)
}

// run is a run under way.
type run struct {
	opts   Options
	t      *rig
	log    *history.Log
	begun  int64
	ground *ground

	nodes    []*node
	crews    []*crew
	here     *worker
	upstream *process
	serves   atomic.Pointer[string] // where the upstream listens
	up       *faultnet.Net          // between the nodes and the upstream
	asked    *httptest.Server

	pending, deliveries atomic.Int64
	earlier             atomic.Bool // nodes run the earlier program
}

// Run does one run: nodes, workers and an upstream on a store, calls and faults for a
// while, and then the judgement. An error means that there was no run, or half of one. The
// servers of the store end with the test, and so does what the nodes have left, unless a
// rule was broken.
func Run(t testing.TB, o Options) (rep *Report, err error) {
	dir, err := os.MkdirTemp("", "semel-chaos-")
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		if rep != nil && !rep.OK() {
			_ = os.Remove(filepath.Join(dir, "disk.img"))
		} else if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	// Servers run as users of their own.
	if err := os.Chmod(dir, 0o755); err != nil {
		return nil, err
	}
	r := &run{opts: o, t: &rig{TB: t, dir: dir}, log: history.NewLog(rules, lease), begun: now()}
	r.earlier.Store(o.Earlier != "")
	return r.play(t.Context())
}

// tell logs something that happens to the system.
func (r *run) tell(text string) { r.told("", text) }

// told is tell for the steps of a fault.
func (r *run) told(fault, text string) {
	r.log.Add(history.Event{At: now(), Kind: history.Fault, Verb: fault, Text: text})
	if r.opts.Tell != nil {
		r.opts.Tell(fmt.Sprintf("%10.4f !! %s", time.Duration(now()-r.begun).Seconds(), text))
	}
}

// addresses are where the nodes are reached, over networks that can fail.
func (r *run) addresses() []string {
	all := make([]string, len(r.nodes))
	for i, n := range r.nodes {
		all[i] = n.net.Addr()
	}
	return all
}

func (r *run) play(ctx context.Context) (rep *Report, err error) {
	r.ground = r.t.start(r.opts)
	defer r.stop()
	if err := r.start(); err != nil {
		return nil, err
	}
	s := &injector{brief: r.opts.Brief, rng: rand.New(rand.NewPCG(r.opts.Seed, 9)), tell: r.told, busy: map[string]bool{}, fired: map[string]int{}}
	for _, f := range r.faults() {
		if r.opts.Faults == nil || r.opts.Faults.MatchString(f.name) {
			s.faults = append(s.faults, f)
		}
	}
	r.begun = now()
	err = r.loadAndBreak(ctx, s)
	seconds := time.Duration(now() - r.begun).Seconds()
	if err := errors.Join(err, ctx.Err()); err != nil {
		return nil, err
	}
	if err := r.heal(ctx); err != nil {
		return nil, err
	}
	recovered, err := r.recover(ctx)
	if err != nil {
		return nil, err
	}
	r.settle(ctx, settling)
	rep = r.report(seconds, s)
	rep.recovered(recovered)
	return rep, nil
}

// loadAndBreak makes calls and injects faults at the same time, as long as the run lasts.
func (r *run) loadAndBreak(ctx context.Context, s *injector) (err error) {
	ctx, cancel := context.WithTimeout(ctx, r.opts.Duration)
	defer cancel()
	var work sync.WaitGroup
	work.Go(func() { r.load(ctx) })
	work.Go(func() { s.run(ctx) })
	work.Go(func() { err = r.upgrade(ctx, s) })
	work.Go(func() {
		for ctx.Err() == nil {
			for _, n := range r.nodes {
				n.sample()
			}
			stage.Pause(ctx, 250*time.Millisecond)
		}
	})
	work.Wait()
	return err
}

// heal ends the remaining faults, and waits until nothing is under way.
func (r *run) heal(ctx context.Context) error {
	r.up.Set(faultnet.Healthy)
	for _, n := range r.nodes {
		n.net.Set(faultnet.Healthy)
		_ = n.setClock(0, -n.slept)
	}
	if err := r.ground.heal(); err != nil {
		return fmt.Errorf("heal the store: %w", err)
	}
	r.tell("all faults have ended")
	ctx, cancel := context.WithTimeout(ctx, settled)
	defer cancel()
	for _, n := range r.nodes {
		for err := n.isReady(); err != nil; err = n.isReady() {
			if stage.Pause(ctx, 100*time.Millisecond); ctx.Err() != nil {
				return fmt.Errorf("%s does not get ready %v after all faults have ended: %w", n.name, settled, err)
			}
		}
	}
	for r.pending.Load() > 0 {
		if stage.Pause(ctx, 50*time.Millisecond); ctx.Err() != nil {
			return fmt.Errorf("%d deliveries are still under way %v after all faults have ended", r.pending.Load(), settled)
		}
	}
	r.tell("no delivery is under way")
	return nil
}

// settled is how long to wait at most until a part of the run has ended.
const settled = 90 * time.Second
