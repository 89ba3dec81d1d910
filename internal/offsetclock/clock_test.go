package offsetclock

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/semelhq/semel/internal/bootclock"
	"github.com/semelhq/semel/store"
)

// errUnsure is the error of Now if the server has to be asked first.
var errUnsure = errors.New("the server has to be asked")

// twoClocks are the clocks of a server and of a machine that follows it.
type twoClocks struct {
	t         rapid.TB
	clock     Clock
	monotonic time.Duration // of the machine
	wall      time.Duration
	slept     time.Duration
	note      string
	server    store.Instant
	given     store.Instant // last
}

func newTwoClocks(t rapid.TB) *twoClocks {
	w := &twoClocks{t: t, server: store.InstantOf(time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC))}
	w.clock.Bound = bound
	w.clock.Machine = func() Moment { return Moment{Wall: w.wall, Mono: w.monotonic} }
	w.clock.Boot = func() bootclock.Reading {
		return bootclock.Reading{ID: "boot", Up: w.monotonic + w.slept, Slept: w.slept}
	}
	w.clock.Noted = func(context.Context) (string, error) { return w.note, nil }
	w.clock.Note = func(_ context.Context, _, next string) error { w.note = next; return nil }
	w.clock.Beside = func(func(context.Context)) error { return errUnsure }
	return w
}

// pass lets time pass on all clocks.
func (w *twoClocks) pass(d time.Duration) {
	w.monotonic += d
	w.wall += d
	w.server = w.server.Add(d)
}

// suspend lets time pass while the machine is suspended.
func (w *twoClocks) suspend(d time.Duration) {
	w.slept += d
	w.wall += d
	w.server = w.server.Add(d)
}

// read reads the server's clock over a network that takes its time.
func (w *twoClocks) read(there, back time.Duration) error {
	return w.readWhile(func() { w.pass(there) }, func() { w.pass(back) })
}

// readWhile reads it while something happens before the server looks, and after that.
func (w *twoClocks) readWhile(before, after func()) error {
	w.clock.Ask = func(ctx context.Context) (r Reading, err error) {
		r.Asked = w.clock.Machine()
		before()
		r.At = w.server
		after()
		r.Came = w.clock.Machine()
		return r, nil
	}
	return w.clock.Read(context.Background())
}

// now is the time of the clock, which must never go back.
func (w *twoClocks) now() (store.Instant, error) {
	at, err := w.clock.Now(context.Background())
	if err == nil {
		if at < w.given {
			w.t.Fatalf("the clock went back by %v", w.given.Sub(at))
		}
		w.given = at
	}
	return at, err
}

// want checks that the clock is behind the server's by at most lag, and never ahead.
func (w *twoClocks) want(lag time.Duration) {
	w.t.Helper()
	at, err := w.now()
	if err != nil {
		w.t.Fatal(err)
	}
	if behind := w.server.Sub(at); behind < 0 || behind > lag {
		w.t.Fatalf("the clock is %v behind the server's", behind)
	}
}

// wantUnsure checks that the clock asks the server before it returns a time.
func (w *twoClocks) wantUnsure() {
	w.t.Helper()
	if at, err := w.now(); !errors.Is(err, errUnsure) {
		w.t.Fatalf("the clock gives %v, %v", at, err)
	}
}

func noError(t rapid.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestTheClockIsNeverAheadOfItsServer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newTwoClocks(t)
		delay := rapid.Custom(func(t *rapid.T) time.Duration {
			return time.Duration(rapid.Int64Range(0, int64(time.Second)).Draw(t, "delay"))
		})
		longest := time.Duration(0) // the round trip of the first reading bounds the lag
		read := func(t *rapid.T) {
			there, back := delay.Draw(t, "there"), delay.Draw(t, "back")
			longest = max(longest, there+back)
			if err := w.read(there, back); err != nil {
				t.Fatal(err)
			}
		}
		read(t)
		t.Repeat(map[string]func(*rapid.T){
			"read": read,
			"pass": func(t *rapid.T) {
				w.pass(time.Duration(rapid.Int64Range(0, int64(10*time.Second)).Draw(t, "pass")))
			},
			"": func(t *rapid.T) {
				if w.clock.state.Load().holds(w.clock.Machine(), bound) {
					w.want(longest)
				}
			},
		})
	})
}

func TestASuspendedMachine(t *testing.T) {
	for _, d := range []time.Duration{time.Second, time.Minute, 8 * time.Hour} {
		t.Run(d.String()+": the server is asked before a time is given", func(t *testing.T) {
			w := newTwoClocks(t)
			noError(t, w.read(trip/2, trip/2))
			w.pass(time.Second)
			w.want(trip)
			w.suspend(d)
			w.wantUnsure()
			noError(t, w.read(trip/2, trip/2))
			w.want(trip)
		})
		t.Run(d.String()+" while the server is asked: the answer is of no use", func(t *testing.T) {
			w := newTwoClocks(t)
			noError(t, w.read(trip/2, trip/2))
			if err := w.readWhile(func() {}, func() { w.suspend(d) }); !errors.Is(err, ErrSuspended) {
				t.Fatalf("an answer from before is taken: %v", err)
			}
			w.wantUnsure()
			noError(t, w.read(trip/2, trip/2))
			w.want(trip)
		})
	}
	t.Run("a wall clock that is set has the server asked, and changes nothing", func(t *testing.T) {
		for _, by := range []time.Duration{time.Hour, -time.Hour} {
			w := newTwoClocks(t)
			noError(t, w.read(trip/2, trip/2))
			w.wall += by
			w.wantUnsure()
			noError(t, w.read(trip/2, trip/2))
			w.want(trip)
		}
	})
	t.Run("drift of the two clocks is nothing", func(t *testing.T) {
		w := newTwoClocks(t)
		noError(t, w.read(trip/2, trip/2))
		w.pass(Period)
		w.wall += Period / 1000
		w.want(trip)
	})
}

func TestSmallSteps(t *testing.T) {
	begin := func(t *testing.T) *twoClocks {
		w := newTwoClocks(t)
		noError(t, w.read(trip/2, trip/2))
		w.want(trip)
		return w
	}
	t.Run("ahead of less than a second are believed", func(t *testing.T) {
		w := begin(t)
		w.server = w.server.Add(Leap - trip)
		noError(t, w.read(trip/2, trip/2))
		w.want(trip)
	})
	t.Run("back by a little have the clock run slower", func(t *testing.T) {
		w := begin(t)
		at, err := w.now()
		noError(t, err)
		w.server = w.server.Add(-bound / 2)
		noError(t, w.read(trip/2, trip/2))
		w.pass(time.Second)
		again, err := w.now()
		noError(t, err)
		if went := again.Sub(at); went < time.Second*8/10 || went >= time.Second {
			t.Errorf("in a second it goes on by %v", went)
		}
		w.pass(time.Second)
		again, err = w.now()
		noError(t, err)
		if off := again.Sub(w.server); off.Abs() > trip {
			t.Errorf("then it is off by %v", off)
		}
	})
	t.Run("are not what a reading says that took long", func(t *testing.T) {
		w := begin(t)
		w.monotonic, w.wall = w.monotonic+time.Millisecond, w.wall+time.Millisecond // they drift
		_, err := w.now()
		noError(t, err)
		noError(t, w.read(0, time.Second))
		_, err = w.now()
		noError(t, err)
		w.pass(time.Second)
		w.want(time.Second)
	})
}

// A caller may be delayed while others get later times.
func TestALateCallerIsNotAClockThatGoesBack(t *testing.T) {
	w := newTwoClocks(t)
	noError(t, w.read(0, 0))
	look := w.clock.Machine
	w.clock.Machine = func() Moment {
		w.clock.Machine = look
		m := look()
		w.pass(10 * bound)
		w.want(0) // another
		return m
	}
	w.want(0)
}

func TestTheTimeCostsNoMemory(t *testing.T) {
	w := newWorld(t, 1)
	c := w.nodes[0].Clock
	ctx := context.Background()
	if n := testing.AllocsPerRun(100, func() {
		at, err := c.Now(ctx)
		if c.State(at).Held != 0 || err != nil {
			t.Error("the clock leaps")
		}
	}); n != 0 {
		t.Errorf("it takes %v allocations", n)
	}
}

// What a test has moved the clock by moves what is known of it, too.
func TestAdvance(t *testing.T) {
	w := newWorld(t, 1)
	a := w.nodes[0]
	a.Advance(time.Hour)
	if st := a.State(a.now()); st != (store.ClockState{}) {
		t.Errorf("its state is %+v", st)
	}
	w.server = w.server.Add(10 * time.Minute)
	w.live(time.Minute)
	now := a.now()
	st := a.State(now)
	if st.Since > now || now.Sub(st.Since) > time.Minute || (st.Until.Sub(st.Since)-10*time.Minute).Abs() > bound || st.Leap.At != 0 {
		t.Errorf("at %v its state is %+v", now, st)
	}
	if at := a.Servers(now); at != w.server {
		t.Errorf("the servers' clock shows %v, want %v", at, w.server)
	}
}

// Whoever gives up while the servers are asked gets no time, and neither does a clock that has
// read nothing have a state.
func TestNobodyWaitsForAReadingForEver(t *testing.T) {
	w := newTwoClocks(t)
	w.clock.Beside = func(func(context.Context)) error { return nil } // and nothing comes of it
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if at, err := w.clock.Now(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("the time is %v, %v", at, err)
	}
	if st := w.clock.State(0); st != (store.ClockState{}) {
		t.Errorf("its state is %+v", st)
	}
}

// A wall clock that goes by as much as the clocks of servers differ doesn't make a reading old.
func TestAReadingDuringASmallCorrection(t *testing.T) {
	w := newTwoClocks(t)
	noError(t, w.readWhile(func() { w.wall += bound }, func() {}))
	w.wall += bound
	w.want(0)
	if err := w.readWhile(func() { w.wall += bound + 1 }, func() {}); !errors.Is(err, ErrSuspended) {
		t.Errorf("got %v", err)
	}
}

// TestNotesOfEarlierAndLaterPrograms: what was noted in form 1 is read for good, and a later
// form is refused with what to do.
func TestNotesOfEarlierAndLaterPrograms(t *testing.T) {
	n, err := ParseNote(`1 1795694400000000000 -3600000000000 1795694399000000000 1795697999000000000 1795690000000000000 5000000000 "boot-1" 1795600000000000000`)
	if want := (Note{
		At: 1795694400000000000, Off: -time.Hour, Since: 1795694399000000000, Until: 1795697999000000000,
		Leap: store.Leap{At: 1795690000000000000, By: 5 * time.Second}, Boot: "boot-1", BootOff: 1795600000000000000,
	}); n != want || err != nil {
		t.Errorf("got %+v, %v", n, err)
	}
	if n, err := ParseNote(""); n != (Note{}) || err != nil {
		t.Errorf("nothing is %+v, %v", n, err)
	}
	if _, err := ParseNote("2 and what comes then"); err == nil || !strings.Contains(err.Error(), "use the program that wrote it, or a later one") {
		t.Errorf("a later form gives %v", err)
	}
}
