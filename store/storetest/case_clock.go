package storetest

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
)

const ruleNow = "Now is the store's clock, by which leases and windows are judged. It never goes back, not even when the process restarts over the same data."

// now reads the store's clock.
func now(t *testing.T, s semel.Store) store.Instant {
	t.Helper()
	at, err := s.Now(t.Context())
	if err != nil {
		t.Fatalf("Now: %v", err)
	}
	return at
}

const ruleLeap = "Now of such a store runs by a clock that nobody can set, and doesn't follow at once where the clock of the machine or server is set: running early what has expired makes an effect twice, and keeping a record longer harms nobody."

var leapCases = []testCase{
	{"a clock that leaps, and back, expires nothing and ends no lease", ruleLeap, func(t *testing.T, env Env) {
		clause.Proves(t, "G-CLOCK")
		e, began := newEngine(t, env.Store), now(t, env.Store)
		done, held := call(opRetry, "done"), semel.Call{}
		complete(t, begin(t, e, done, semel.Execute).Attempt, "result")
		var working *semel.Attempt
		check := func(what string) {
			t.Helper()
			at := now(t, env.Store)
			if moved := at.Sub(began); moved < 0 || moved > time.Hour {
				t.Fatalf("%s the clock moves by %v", what, moved)
			}
			if k := env.Store.Extras().Clock; k != nil {
				t.Logf("%s: %+v", what, k.ClockState(at))
			}
			if _, err := e.Sweep(t.Context()); err != nil {
				t.Fatalf("Sweep: %v", err)
			}
			replays(t, e, done, "result")
			begin(t, e, held, semel.InFlight)
		}
		// By less than a window of a day, and by more.
		for _, far := range []time.Duration{10 * time.Second, 2 * time.Hour, 25 * time.Hour, 400 * 24 * time.Hour} {
			held = call(opRetry, fmt.Sprint("at work", far))
			working = begin(t, e, held, semel.Execute).Attempt
			for _, by := range []time.Duration{far, -far, -far, far} {
				env.Leap(by)
				check(fmt.Sprint("after a leap by ", by))
				if env.Reopen != nil {
					env.reopen()
					e = newEngine(t, env.Store)
					check(fmt.Sprint("opened again after a leap by ", by))
				}
			}
		}
		if env.Reopen == nil {
			complete(t, working, "late")
			replays(t, e, held, "late")
		}
		complete(t, begin(t, e, call(opHold, "afterwards"), semel.Execute).Attempt, "new")
		replays(t, e, call(opHold, "afterwards"), "new")
	}},
}

var clockCases = []testCase{
	{"the clock advances with time", ruleNow, func(t *testing.T, env Env) {
		for _, d := range []time.Duration{time.Millisecond, time.Second, time.Hour} {
			before := now(t, env.Store)
			env.Advance(d)
			if moved := now(t, env.Store).Sub(before); moved < d {
				t.Fatalf("the clock moved by %v while %v passed", moved, d)
			}
		}
	}},
	{"the clock never goes back, whoever reads it", ruleNow, func(t *testing.T, env Env) {
		var mu sync.Mutex
		var latest store.Instant
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 500 {
					mu.Lock()
					seen := latest // somebody knew it before this reading began
					mu.Unlock()
					at, err := env.Store.Now(t.Context())
					if err != nil {
						t.Errorf("Now: %v", err)
						return
					}
					if at < seen {
						t.Errorf("the clock went back by %v", seen.Sub(at))
						return
					}
					mu.Lock()
					if at > latest {
						latest = at
					}
					mu.Unlock()
				}
			})
		}
		wg.Wait()
	}},
	{"the clock does not go back when the store is opened again", ruleNow, func(t *testing.T, env Env) {
		// A store that keeps nothing isn't opened again, but writes must not disturb its clock,
		// either.
		for range 3 {
			env.Advance(time.Minute)
			put(t, env.Store, claimed(key(fresh().String()), 1), store.Revision{})
			before := now(t, env.Store)
			env.reopen()
			if at := now(t, env.Store); at < before {
				t.Fatalf("the clock went back by %v", before.Sub(at))
			}
		}
	}},
}
