package pgstore

import (
	"encoding/binary"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel/internal/offsetclock"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/internal/rig/pgtest"
	"github.com/semelhq/semel/store"
)

// TestNowAsksTheServer has a server whose clock another sees as the wire says.
func TestNowAsksTheServer(t *testing.T) {
	server := pgtest.Shared(t)
	database := server.Database(t)
	w := newWire(t, server)
	var asked, slept atomic.Int64
	w.set(func(x *exchange) {
		if slices.Contains(x.sql, "SELECT clock_timestamp()") {
			asked.Add(1)
		}
	})
	real := offsetclock.Machine()
	s := mustOpen(t, w.url(database), &Options{Migrate: true, noNotices: true, AcquireTimeout: 10 * time.Second, machine: func() offsetclock.Moment {
		m := real()
		m.Wall += time.Duration(slept.Load())
		return m
	}})
	t.Cleanup(func() { mustClose(t, s) })
	now := func() store.Instant {
		t.Helper()
		at, err := s.Now(t.Context())
		noError(t, err)
		return at
	}
	now()
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
}

// TestAServerClockThatLeaps has two stores of one database, whose server's clock is set.
func TestAServerClockThatLeaps(t *testing.T) {
	clause.Proves(t, "G-CLOCK")
	server := pgtest.Shared(t)
	w := newWire(t, server)
	var ahead, passed, slept atomic.Int64
	w.set(func(x *exchange) {
		if slices.Contains(x.sql, "SELECT clock_timestamp()") {
			x.after = func(reply [][]byte) [][]byte { return showing(reply, time.Duration(ahead.Load()+passed.Load())) }
		}
	})
	machine := func() offsetclock.Moment {
		return offsetclock.Moment{Wall: time.Duration(passed.Load() + slept.Load()), Mono: time.Duration(passed.Load())}
	}
	for _, leap := range []time.Duration{10 * time.Second, 2 * time.Hour, 25 * time.Hour, 400 * 24 * time.Hour} {
		t.Run(leap.String(), func(t *testing.T) {
			database := server.Database(t)
			open := func() *Store {
				s := mustOpen(t, w.url(database), &Options{Migrate: true, noNotices: true, AcquireTimeout: 10 * time.Second, machine: machine})
				t.Cleanup(func() { mustClose(t, s) })
				return s
			}
			now := func(s *Store) store.Instant {
				t.Helper()
				at, err := s.Now(t.Context())
				noError(t, err)
				return at
			}
			s, other := open(), open()
			live := func(d time.Duration) {
				t.Helper()
				for step := time.Duration(0); d > 0; d -= step {
					step = min(d, offsetclock.Period) // or far more, in the midst of a long time
					if d > 2*offsetclock.MaxAge {
						step = offsetclock.MaxAge
					}
					passed.Add(int64(step))
					for _, s := range []*Store{s, other} {
						noError(t, s.clock.Read(t.Context()))
						now(s)
					}
				}
			}
			start, from := now(s), passed.Load()
			// want checks that all have the time that has passed, and a step, and those who begin too.
			want := func(step time.Duration) {
				t.Helper()
				for name, s := range map[string]*Store{"one": s, "another": other, "who begins": open()} {
					off := now(s).Sub(start) - time.Duration(passed.Load()-from) - step
					if off < -offsetclock.Near || off > time.Minute { // the true time passes, too
						t.Errorf("%s is off by %v", name, off)
					}
				}
			}
			ahead.Store(int64(leap)) // for a moment
			live(6 * time.Second)
			want(0)
			if st := s.ClockState(now(s)); (st.Held - leap).Abs() > offsetclock.Near {
				t.Errorf("its state is %+v", st)
			}
			ahead.Store(0)
			live(6 * time.Second)
			want(0)
			ahead.Store(int64(leap)) // for ever
			if leap > time.Hour {
				live(55 * time.Minute)
				want(0)
				live(6 * time.Minute)
			} else {
				live(2 * leap)
			}
			want(leap)
			ahead.Store(0) // and back
			live(6 * time.Second)
			want(leap)
			ahead.Store(int64(leap))
			live(6 * time.Second)
			want(leap)
			if leap > 24*time.Hour {
				ahead.Add(int64(leap))
				live(6 * time.Second)
				want(leap)
				_, err := other.AcceptClock(t.Context())
				noError(t, err)
				live(3 * offsetclock.Period)
				want(2 * leap)
				ahead.Store(0)
			}
			ahead.Store(0)
		})
	}
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
