package pebblestore

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// testClocks are a machine's two clocks, set by hand.
type testClocks struct {
	mu   sync.Mutex
	wall store.Instant
	mono time.Duration
}

func (c *testClocks) source() (store.Instant, time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wall, c.mono
}

// ahead is the time of a machine whose wall clock is ahead.
func ahead(by time.Duration) timeSource {
	source := systemTime()
	return func() (store.Instant, time.Duration) {
		wall, mono := source()
		return wall.Add(by), mono
	}
}

// run lets time pass; only the wall clock shows it all where the machine sleeps.
func (c *testClocks) run(wall, mono time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall, c.mono = c.wall.Add(wall), c.mono+mono
}

func TestTheClockOfAMachineThatSleepsOrIsSetWrong(t *testing.T) {
	tick := func(c *testClocks, d time.Duration) { c.run(d, d) }
	read := func(c *clock, clocks *testClocks, d, step time.Duration) time.Duration {
		t.Helper()
		before := c.now()
		for ; d > 0; d -= step {
			tick(clocks, step)
			at := c.now()
			if at < before {
				t.Fatalf("the clock went back by %v", before.Sub(at))
			}
			before = at
		}
		return before.Sub(clocks.wall)
	}
	begin := func(latest store.Instant) (*clock, *testClocks, *[]time.Duration) {
		clocks := &testClocks{wall: testEpoch}
		var steps []time.Duration
		c := &clock{source: clocks.source, stepped: func(by time.Duration) { steps = append(steps, by) }}
		c.start(latest)
		return c, clocks, &steps
	}
	t.Run("after a sleep the first reading has the time that passed", func(t *testing.T) {
		c, clocks, steps := begin(0)
		tick(clocks, time.Minute)
		clocks.run(8*time.Hour, time.Second)
		if got := c.now(); got != testEpoch.Add(8*time.Hour+time.Minute) {
			t.Errorf("the clock shows %v after the epoch", got.Sub(testEpoch))
		}
		if len(*steps) != 1 || (*steps)[0] != 8*time.Hour-time.Second {
			t.Errorf("its steps are %v", *steps)
		}
		if off := read(c, clocks, time.Hour, time.Minute); off != 0 {
			t.Errorf("later it is off by %v", off)
		}
	})
	t.Run("many short sleeps add up", func(t *testing.T) {
		c, clocks, _ := begin(0)
		for range 100 {
			clocks.run(time.Second+100*time.Millisecond, 100*time.Millisecond)
			if behind := clocks.wall.Sub(c.now()); behind > maxApart {
				t.Fatalf("the clock is %v behind", behind)
			}
		}
	})
	t.Run("small steps of the wall clock don't show", func(t *testing.T) {
		c, clocks, steps := begin(0)
		for _, step := range []time.Duration{time.Second, -2 * time.Second, 2 * time.Second, -maxApart} {
			clocks.run(step, 0)
			before := c.now()
			tick(clocks, time.Second)
			if moved := c.now().Sub(before); moved != time.Second {
				t.Errorf("after a step by %v a second took %v", step, moved)
			}
		}
		if len(*steps) != 0 {
			t.Errorf("its steps are %v", *steps)
		}
	})
	t.Run("a wall clock that was an hour ahead for a moment is made up for in two", func(t *testing.T) {
		c, clocks, _ := begin(0)
		clocks.run(time.Hour, 0)
		ahead := c.now()
		if ahead != clocks.wall {
			t.Errorf("the clock is %v off", ahead.Sub(clocks.wall))
		}
		clocks.run(-time.Hour, 0)
		if off := read(c, clocks, time.Hour, 100*time.Millisecond); off > 30*time.Minute+time.Second || off < 30*time.Minute-time.Second {
			t.Errorf("after an hour the clock is %v ahead", off)
		}
		if off := read(c, clocks, time.Hour, 100*time.Millisecond); off > maxApart || off < 0 {
			t.Errorf("after two hours the clock is %v ahead", off)
		}
		before := c.now()
		tick(clocks, time.Minute)
		if moved := c.now().Sub(before); moved != time.Minute {
			t.Errorf("then a minute takes %v", moved)
		}
	})
	t.Run("what the directory knows of is kept, and made up for", func(t *testing.T) {
		c, clocks, _ := begin(testEpoch.Add(time.Hour))
		if got := c.now(); got != testEpoch.Add(time.Hour) {
			t.Errorf("the clock begins %v after the epoch", got.Sub(testEpoch))
		}
		if off := read(c, clocks, 3*time.Hour, time.Second); off > maxApart || off < 0 {
			t.Errorf("after three hours the clock is %v ahead", off)
		}
	})
}

// A write is judged by the clock of the moment at which it is made, and of a machine
// that slept until then.
func TestAClaimThatSleptIsTooLate(t *testing.T) {
	clocks := &testClocks{wall: testEpoch}
	s := mustOpen(t, "store", &Options{FS: vfs.NewMem(), time: clocks.source})
	defer s.Close()
	now, err := s.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w := store.Write{Record: testRecord(testID("k"), 1, semel.Processing), Deadline: now.Add(30 * time.Second)}
	clocks.run(time.Hour, 0)
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
