package pgstore

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/pgtest"
)

// twoClocks are a server's clock and that of a machine whose clock is compared with it.
type twoClocks struct {
	t         rapid.TB
	clock     clock
	monotonic time.Duration // of the machine
	wall      time.Duration
	server    semel.Instant
	given     semel.Instant // last
}

func newTwoClocks(t rapid.TB) *twoClocks {
	w := &twoClocks{t: t, server: semel.InstantOf(time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC))}
	w.clock.start(func() moment { return moment{w.monotonic, w.wall} }, new(atomic.Int64))
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
	w.wall += d
	w.server = w.server.Add(d)
}

// read reads the server's clock over a network that takes its time.
func (w *twoClocks) read(there, back time.Duration) error {
	before := moment{w.monotonic, w.wall}
	w.pass(there)
	shown := w.server
	w.pass(back)
	return w.clock.sample(shown, before, moment{w.monotonic, w.wall})
}

// now is the time that the clock gives, which never goes back.
func (w *twoClocks) now() (semel.Instant, error) {
	at, err := w.clock.now()
	if err == nil {
		if at < w.given {
			w.t.Fatalf("the clock went back by %v", w.given.Sub(at))
		}
		w.given = at
	}
	return at, err
}

// want checks that the clock gives a time that is behind the server's by a round trip
// at most, or the error.
func (w *twoClocks) want(lag time.Duration, want error) {
	if h, ok := w.t.(interface{ Helper() }); ok {
		h.Helper()
	}
	at, err := w.now()
	if !errors.Is(err, want) {
		w.t.Fatalf("the clock gives %v, want %v", err, want)
	}
	if behind := w.server.Sub(at); err == nil && (behind < 0 || behind > lag) {
		w.t.Fatalf("the clock is %v behind the server's", behind)
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
				if _, err := w.clock.now(); errors.Is(err, errUnsure) {
					return
				}
				w.want(longest, nil)
			},
		})
	})
}

func TestASuspendedMachine(t *testing.T) {
	const trip = 2 * time.Millisecond
	for _, d := range []time.Duration{time.Second, time.Minute, 8 * time.Hour} {
		t.Run(d.String()+": the server is asked before a time is given", func(t *testing.T) {
			w := newTwoClocks(t)
			noError(t, w.read(trip/2, trip/2))
			w.pass(time.Second)
			w.want(trip, nil)
			w.suspend(d)
			w.want(0, errUnsure)
			noError(t, w.read(trip/2, trip/2))
			w.want(trip, nil)
		})
		t.Run(d.String()+" while the server is asked: the answer is of no use", func(t *testing.T) {
			w := newTwoClocks(t)
			noError(t, w.read(trip/2, trip/2))
			before := moment{w.monotonic, w.wall}
			shown := w.server
			w.suspend(d)
			if err := w.clock.sample(shown, before, moment{w.monotonic, w.wall}); !errors.Is(err, errAsleep) {
				t.Fatalf("an answer from before is taken: %v", err)
			}
			w.want(0, errUnsure)
			noError(t, w.read(trip/2, trip/2))
			w.want(trip, nil)
		})
	}
	t.Run("a wall clock that is set has the server asked, and changes nothing", func(t *testing.T) {
		for _, by := range []time.Duration{time.Hour, -time.Hour} {
			w := newTwoClocks(t)
			noError(t, w.read(trip/2, trip/2))
			w.wall += by
			w.want(0, errUnsure)
			noError(t, w.read(trip/2, trip/2))
			w.want(trip, nil)
		}
	})
	t.Run("drift of the two clocks is nothing", func(t *testing.T) {
		w := newTwoClocks(t)
		noError(t, w.read(trip/2, trip/2))
		w.pass(clockPeriod)
		w.wall += clockPeriod / 1000
		w.want(trip, nil)
	})
}

func TestAServerClockThatLeaps(t *testing.T) {
	const trip = 2 * time.Millisecond
	begin := func(t *testing.T) *twoClocks {
		w := newTwoClocks(t)
		noError(t, w.read(trip/2, trip/2))
		w.want(trip, nil)
		return w
	}
	leaps := func(t *testing.T, w *twoClocks) {
		t.Helper()
		if err := w.read(trip/2, trip/2); !errors.Is(err, errLeapt) {
			t.Fatalf("a leap is taken: %v", err)
		}
		w.want(0, errUnsure)
	}
	t.Run("is believed when another reading confirms it a while later", func(t *testing.T) {
		w := begin(t)
		w.server = w.server.Add(time.Hour)
		leaps(t, w)
		leaps(t, w)
		w.pass(clockConfirm / 2)
		leaps(t, w)
		w.pass(clockConfirm / 2)
		noError(t, w.read(trip/2, trip/2))
		w.want(trip, nil)
	})
	t.Run("is forgotten when it was for a moment", func(t *testing.T) {
		w := begin(t)
		w.server = w.server.Add(time.Hour)
		leaps(t, w)
		w.server = w.server.Add(-time.Hour)
		w.pass(clockConfirm)
		noError(t, w.read(trip/2, trip/2))
		w.want(trip, nil)
		w.server = w.server.Add(time.Hour)
		leaps(t, w) // anew
	})
	t.Run("is not confirmed by another leap", func(t *testing.T) {
		w := begin(t)
		for range 3 {
			w.server = w.server.Add(time.Hour)
			w.pass(clockConfirm)
			leaps(t, w)
		}
	})
	t.Run("of less than a second is a step", func(t *testing.T) {
		w := begin(t)
		w.server = w.server.Add(clockLeap - trip)
		noError(t, w.read(trip/2, trip/2))
		w.want(trip, nil)
	})
	t.Run("beside a suspension is not explained by that", func(t *testing.T) {
		w := begin(t)
		w.suspend(time.Hour)
		w.server = w.server.Add(time.Hour)
		leaps(t, w)
	})
}

func TestAServerClockThatGoesBack(t *testing.T) {
	const trip = 2 * time.Millisecond
	ahead := func(t *testing.T) *twoClocks {
		w := newTwoClocks(t)
		noError(t, w.read(trip/2, trip/2))
		w.server = w.server.Add(time.Hour)
		if err := w.read(trip/2, trip/2); !errors.Is(err, errLeapt) {
			t.Fatal(err)
		}
		w.pass(clockConfirm)
		noError(t, w.read(trip/2, trip/2))
		w.want(trip, nil)
		return w
	}
	t.Run("after an hour ahead nothing is given until it has caught up", func(t *testing.T) {
		w := ahead(t)
		w.server = w.server.Add(-time.Hour)
		noError(t, w.read(trip/2, trip/2))
		w.want(0, errBehind)
		if _, err := w.now(); !strings.Contains(err.Error(), "gone back") || !strings.Contains(err.Error(), "set it right, or wait") || !strings.Contains(err.Error(), "59m") {
			t.Errorf("the error does not say what is wrong, by how much, and what to do: %v", err)
		}
		for range 59 {
			w.pass(time.Minute)
			noError(t, w.read(trip/2, trip/2))
			w.want(0, errBehind)
		}
		w.pass(time.Minute)
		noError(t, w.read(trip/2, trip/2))
		w.want(trip, nil)
	})
	t.Run("one that is set right again is believed as soon as a reading confirms it", func(t *testing.T) {
		w := ahead(t)
		w.server = w.server.Add(-time.Hour)
		noError(t, w.read(trip/2, trip/2))
		w.want(0, errBehind)
		w.server = w.server.Add(time.Hour)
		if err := w.read(trip/2, trip/2); !errors.Is(err, errLeapt) {
			t.Fatal(err)
		}
		w.pass(clockConfirm)
		noError(t, w.read(trip/2, trip/2))
		w.want(trip, nil)
	})
	t.Run("by a little has the clock stand still", func(t *testing.T) {
		w := ahead(t)
		at, err := w.now()
		noError(t, err)
		w.server = w.server.Add(-clockBound / 2)
		noError(t, w.read(trip/2, trip/2))
		if again, err := w.now(); err != nil || again != at {
			t.Errorf("it gives %v later, %v", again.Sub(at), err)
		}
		w.pass(clockBound)
		w.want(trip, nil)
	})
	t.Run("is no error where nobody was told of the time", func(t *testing.T) {
		w := newTwoClocks(t)
		w.server = w.server.Add(time.Hour)
		noError(t, w.read(trip/2, trip/2))
		w.server = w.server.Add(-time.Hour)
		noError(t, w.read(trip/2, trip/2))
		w.want(trip, nil)
	})
	t.Run("is not what a reading says that took long", func(t *testing.T) {
		w := ahead(t)
		w.monotonic, w.wall = w.monotonic+time.Millisecond, w.wall+time.Millisecond // they drift
		_, err := w.now()
		noError(t, err, w.read(0, time.Second))
		_, err = w.now()
		noError(t, err)
		w.pass(time.Second)
		w.want(time.Second, nil)
	})
}

// One who asks for the time may be kept waiting while others get later ones.
func TestALateCallerIsNotAClockThatGoesBack(t *testing.T) {
	w := newTwoClocks(t)
	noError(t, w.read(0, 0))
	look := w.clock.machine
	w.clock.machine = func() moment {
		w.clock.machine = look
		m := look()
		w.pass(10 * clockBound)
		w.want(0, nil) // another
		return m
	}
	w.want(0, nil)
}

// TestNowAsksTheServer has a server whose clock another sees as the wire says.
func TestNowAsksTheServer(t *testing.T) {
	server := pgtest.Shared(t)
	database := server.Database(t)
	w := newWire(t, server)
	var asked, ahead, slept atomic.Int64
	w.set(func(x *exchange) {
		if slices.Contains(x.sql, clockText.any) {
			asked.Add(1)
			x.after = func(reply [][]byte) [][]byte { return showing(reply, time.Duration(ahead.Load())) }
		}
	})
	real := machineClock()
	s := mustOpen(t, w.url(database), &Options{Migrate: true, NoNotices: true, AcquireTimeout: 10 * time.Second, machine: func() moment {
		m := real()
		m.wall += time.Duration(slept.Load())
		return m
	}})
	t.Cleanup(func() { mustClose(t, s) })
	now := func() semel.Instant {
		t.Helper()
		at, err := s.Now(t.Context())
		noError(t, err)
		return at
	}
	start := now()
	t.Run("after a suspension", func(t *testing.T) {
		before := asked.Load()
		slept.Add(int64(time.Hour))
		now()
		if asked.Load() == before {
			t.Error("a time was given without asking")
		}
	})
	t.Run("after a suspension, and fails where it can't", func(t *testing.T) {
		w.cutAll(ending("57P03"))
		slept.Add(int64(time.Hour))
		if at, err := s.Now(t.Context()); err == nil {
			t.Errorf("it gives %v", at)
		}
		w.cutAll(nil)
		await(t, "it can", func() bool { _, err := s.Now(t.Context()); return err == nil })
	})
	t.Run("before a leap is believed", func(t *testing.T) {
		// Where this takes long the store itself may have confirmed it by then.
		await(t, "a leap is not believed", func() bool {
			ahead.Add(int64(time.Hour))
			_, err := s.Now(t.Context())
			return errors.Is(s.readClock(t.Context()), errLeapt) && (err == nil || errors.Is(err, errLeapt))
		})
		await(t, "it is confirmed", func() bool { _, err := s.Now(t.Context()); return err == nil })
		if d := now().Sub(start); d < time.Hour {
			t.Errorf("the clock is %v further", d)
		}
	})
	t.Run("and does not go back with it", func(t *testing.T) {
		was := ahead.Swap(0)
		noError(t, s.readClock(t.Context()))
		if at, err := s.Now(t.Context()); !errors.Is(err, errBehind) {
			t.Errorf("Now gives %v, %v", at, err)
		}
		ahead.Store(was)
		await(t, "it is where it was", func() bool {
			_ = s.readClock(t.Context())
			_, err := s.Now(t.Context())
			return err == nil
		})
	})
}

// showing is the reply to a question for the time by a server whose clock is ahead.
func showing(reply [][]byte, ahead time.Duration) [][]byte {
	reply = slices.Clone(reply)
	for i, msg := range reply {
		if msg[0] == 'D' {
			msg = slices.Clone(msg)
			shown := msg[len(msg)-8:]
			binary.BigEndian.PutUint64(shown, binary.BigEndian.Uint64(shown)+uint64(ahead.Microseconds()))
			reply[i] = msg
		}
	}
	return reply
}
