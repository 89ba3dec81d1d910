package pebblestore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/bootclock"
	"github.com/semelhq/semel/internal/offsetclock"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
)

// testClocks are a machine's clocks, set by hand.
type testClocks struct {
	mu          sync.Mutex
	wall        store.Instant
	mono, slept time.Duration
	boots       int
}

func (c *testClocks) source() machineClocks {
	return machineClocks{
		now: func() offsetclock.Moment {
			c.mu.Lock()
			defer c.mu.Unlock()
			return offsetclock.Moment{Wall: time.Duration(c.wall), Mono: c.mono}
		},
		boot: func() bootclock.Reading {
			c.mu.Lock()
			defer c.mu.Unlock()
			return bootclock.Reading{ID: fmt.Sprint(c.boots), Up: c.mono + c.slept, Slept: c.slept}
		},
	}
}

// ahead is the time of a machine whose wall clock is ahead, from its boot on.
func ahead(by time.Duration) machineClocks {
	is := systemTime()
	now := is.now
	is.now = func() offsetclock.Moment {
		m := now()
		m.Wall += by
		return m
	}
	is.boot = func() bootclock.Reading { return bootclock.Reading{} }
	return is
}

// pass lets time pass, which all clocks show.
func (c *testClocks) pass(d time.Duration) { c.run(d, d, 0) }

// run moves each of the clocks.
func (c *testClocks) run(wall, mono, slept time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall, c.mono, c.slept = c.wall.Add(wall), c.mono+mono, c.slept+slept
}

// boot starts the machine anew.
func (c *testClocks) boot() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.boots++
	c.mono, c.slept = 0, 0
}

// live lets time pass while an engine sweeps, every two seconds if it isn't for many hours.
func (c *testClocks) live(t *testing.T, e *semel.Engine, d time.Duration) {
	t.Helper()
	for step := max(2*time.Second, d/4000); d > 0; d -= step {
		c.pass(min(d, step))
		if _, err := e.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// clockCase is an engine on a store by clocks that a test sets.
type clockCase struct {
	t      *testing.T
	clocks *testClocks
	opts   *Options
	store  *Store
	engine *semel.Engine
}

func newClockCase(t *testing.T) *clockCase {
	c := &clockCase{t: t, clocks: &testClocks{wall: testEpoch}}
	c.opts = &Options{FS: vfs.NewMem(), time: c.clocks.source()}
	c.open()
	t.Cleanup(func() {
		if err := c.store.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func (c *clockCase) open() {
	c.t.Helper()
	c.store = mustOpen(c.t, "store", c.opts)
	var err error
	c.engine, err = semel.New(c.store, &semel.Options{Operations: []semel.Operation{
		{Name: "op", Lease: 6 * time.Second, Window: 24 * time.Hour}, {Name: "late", Window: 24 * time.Hour, RefuseLate: true},
	}})
	if err != nil {
		c.t.Fatal(err)
	}
}

// down lets something happen while the store is closed.
func (c *clockCase) down(happens func()) {
	c.t.Helper()
	if err := c.store.Close(); err != nil {
		c.t.Fatal(err)
	}
	happens()
	c.open()
}

// begin is the decision for a delivery, which ends at once where it executes.
func (c *clockCase) begin(op, key string) semel.Decision {
	c.t.Helper()
	ans, err := c.engine.Begin(c.t.Context(), semel.Call{Tenant: "t", Operation: op, Key: key, FirstSent: c.clocks.wall.Time()})
	if err != nil {
		c.t.Fatal(err)
	}
	if ans.Attempt != nil {
		if err := ans.Attempt.Complete(c.t.Context(), semel.Result{Data: []byte("done")}); err != nil {
			c.t.Fatal(err)
		}
	}
	return ans.Decision
}

// want checks the decision for a delivery.
func (c *clockCase) want(op, key string, want semel.Decision) {
	c.t.Helper()
	if got := c.begin(op, key); got != want {
		c.t.Errorf("a delivery of %q gets %s, want %s", key, got, want)
	}
}

// lease begins a call whose holder goes away, and checks how long its lease is.
func (c *clockCase) lease(key string) {
	c.t.Helper()
	other, err := semel.New(c.store, &semel.Options{Operations: []semel.Operation{{Name: "op", Lease: 6 * time.Second}}})
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, gone := context.WithCancel(c.t.Context())
	defer gone()
	if _, err := other.Begin(ctx, semel.Call{Tenant: "t", Operation: "op", Key: key}); err != nil {
		c.t.Fatal(err)
	}
	c.clocks.live(c.t, c.engine, 5*time.Second)
	c.want("op", key, semel.InFlight)
	c.clocks.live(c.t, c.engine, 2*time.Second)
	c.want("op", key, semel.Held)
}

func TestClocksThatLeap(t *testing.T) {
	clause.Proves(t, "G-CLOCK")
	leaps := []time.Duration{10 * time.Second, 2 * time.Hour, 25 * time.Hour, 400 * 24 * time.Hour}
	if testing.Short() {
		leaps = leaps[2:3] // one caller plays it, whose races don't depend on how far the clock leaps
	}
	for _, by := range leaps {
		for _, sign := range []time.Duration{1, -1} {
			for _, down := range []bool{false, true} {
				for _, lasts := range []time.Duration{5 * time.Second, 50 * time.Minute, 3 * time.Hour} {
					name := fmt.Sprintf("by %v for %v", sign*by, lasts)
					if down {
						name += " while the store is closed"
					}
					t.Run(name, func(t *testing.T) {
						c := newClockCase(t)
						c.want("op", "before", semel.Execute)
						leap := func(by time.Duration) {
							if down {
								c.down(func() { c.clocks.boot(); c.clocks.run(by, 0, 0) })
							} else {
								c.clocks.run(by, 0, 0)
							}
						}
						leap(sign * by)
						c.want("op", "before", semel.Replay)
						for n := 0; time.Duration(n)*20*time.Minute < lasts; n++ {
							if n > 0 {
								c.clocks.live(t, c.engine, 20*time.Minute)
							}
							c.want("op", fmt.Sprint("meanwhile ", n), semel.Execute)
							if lasts > time.Minute {
								c.lease(fmt.Sprint("abandoned ", n))
							}
							if n < 3 {
								c.want("op", "before", semel.Replay)
							}
						}
						c.clocks.live(t, c.engine, lasts%(20*time.Minute))
						if sign < 0 || by < 24*time.Hour || lasts < time.Hour {
							c.want("op", "before", semel.Replay)
						} else {
							c.want("op", "before", semel.Execute) // its window is over
						}
						leap(-sign * by)
						c.clocks.live(t, c.engine, 10*time.Second)
						c.want("op", "before", semel.Replay)
						c.want("op", "meanwhile 0", semel.Replay)
						c.lease("afterwards")
						c.clocks.live(t, c.engine, 65*time.Minute)
						c.want("op", "meanwhile 0", semel.Replay)
						c.want("late", "fresh", semel.Execute)
						c.lease("in the end")
					})
				}
			}
		}
	}
}

func TestAWeekendWithoutTheStore(t *testing.T) {
	const weekend = 60 * time.Hour
	t.Run("the machine was off: what has expired is kept for an hour, and nobody is needed", func(t *testing.T) {
		c := newClockCase(t)
		c.want("op", "friday", semel.Execute)
		c.down(func() { c.clocks.boot(); c.clocks.run(weekend, 0, 0) })
		c.want("op", "friday", semel.Replay)
		c.want("late", "monday", semel.Execute)
		c.clocks.live(t, c.engine, 59*time.Minute)
		c.want("op", "friday", semel.Replay)
		c.clocks.live(t, c.engine, 2*time.Minute)
		c.want("op", "friday", semel.Execute)
		c.want("late", "monday", semel.Replay)
		c.clocks.live(t, c.engine, 23*time.Hour)
		c.want("op", "friday", semel.Replay)
	})
	t.Run("the machine was on", func(t *testing.T) {
		c := newClockCase(t)
		c.want("op", "friday", semel.Execute)
		c.down(func() { c.clocks.pass(weekend) })
		c.want("op", "friday", semel.Execute)
	})
	t.Run("the machine slept", func(t *testing.T) {
		c := newClockCase(t)
		c.want("op", "friday", semel.Execute)
		c.clocks.run(weekend, 0, weekend)
		c.want("op", "friday", semel.Execute)
	})
	t.Run("somebody accepts the clock", func(t *testing.T) {
		c := newClockCase(t)
		c.want("op", "friday", semel.Execute)
		c.down(func() { c.clocks.boot(); c.clocks.run(weekend, 0, 0) })
		state, err := c.store.AcceptClock(t.Context())
		if err != nil || state.Held != 0 {
			t.Errorf("it gives %+v, %v", state, err)
		}
		c.want("op", "friday", semel.Execute)
		c.down(func() { c.clocks.boot(); c.clocks.pass(time.Second) })
		c.want("op", "friday", semel.Replay)
	})
	t.Run("started again and again, the hour goes on", func(t *testing.T) {
		c := newClockCase(t)
		c.want("op", "friday", semel.Execute)
		c.down(func() { c.clocks.boot(); c.clocks.run(weekend, 0, 0) })
		for range 12 {
			c.clocks.live(t, c.engine, 5*time.Minute+time.Second)
			c.down(func() { c.clocks.boot(); c.clocks.pass(time.Second) })
		}
		c.want("op", "friday", semel.Execute)
	})
}

// A write is judged by the clock of the moment at which it is made, and of a machine
// that slept until then.
func TestAClaimThatSleptIsTooLate(t *testing.T) {
	clocks := &testClocks{wall: testEpoch}
	s := mustOpen(t, "store", &Options{FS: vfs.NewMem(), time: clocks.source()})
	defer s.Close()
	now, err := s.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w := store.Write{Record: new(testRecord(testID("k"), 1, semel.Processing)), Deadline: now.Add(30 * time.Second)}
	clocks.run(time.Hour, 0, time.Hour)
	if _, ok, err := s.Apply(t.Context(), w); ok || !errors.Is(err, store.ErrTooLate) {
		t.Fatalf("Apply gives %v, %v", ok, err)
	}
	if _, err := s.Get(t.Context(), w.Record.ID); !errors.Is(err, semel.ErrNotFound) {
		t.Fatalf("Get gives %v", err)
	}
	if now, err = s.Now(t.Context()); err != nil || now != clocks.wall {
		t.Fatalf("the store's clock is %v off, error %v", now.Sub(clocks.wall), err)
	}
}
