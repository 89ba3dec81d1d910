package pgstore

import (
	"encoding/binary"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel/internal/offsetclock"
	"github.com/semelhq/semel/internal/pgtest"
	"github.com/semelhq/semel/store"
)

// TestNowAsksTheServer has a server whose clock another sees as the wire says.
func TestNowAsksTheServer(t *testing.T) {
	server := pgtest.Shared(t)
	database := server.Database(t)
	w := newWire(t, server)
	var asked, ahead, slept, passed atomic.Int64
	w.set(func(x *exchange) {
		if slices.Contains(x.sql, "SELECT clock_timestamp()") {
			asked.Add(1)
			x.after = func(reply [][]byte) [][]byte { return showing(reply, time.Duration(ahead.Load()+passed.Load())) }
		}
	})
	real := offsetclock.Machine()
	s := mustOpen(t, w.url(database), &Options{Migrate: true, NoNotices: true, AcquireTimeout: 10 * time.Second, machine: func() offsetclock.Moment {
		m := real()
		m.Mono += time.Duration(passed.Load())
		m.Wall += time.Duration(passed.Load() + slept.Load())
		return m
	}})
	t.Cleanup(func() { mustClose(t, s) })
	now := func() store.Instant {
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
		ahead.Add(int64(time.Hour))
		passed.Add(int64(2 * offsetclock.MaxAge))
		if at, err := s.Now(t.Context()); !is[*offsetclock.AheadError](err) {
			t.Errorf("Now gives %v, %v", at, err)
		}
		passed.Add(int64(offsetclock.ConfirmAfter))
		if d := now().Sub(start); d < time.Hour {
			t.Errorf("the clock is %v further", d)
		}
	})
	t.Run("and does not go back with it", func(t *testing.T) {
		was := ahead.Swap(0)
		passed.Add(int64(2 * offsetclock.MaxAge))
		if at, err := s.Now(t.Context()); !is[*offsetclock.BehindError](err) {
			t.Errorf("Now gives %v, %v", at, err)
		}
		ahead.Store(was)
		passed.Add(int64(offsetclock.AskAgain))
		now()
	})
}

func is[E error](err error) bool { _, ok := errors.AsType[E](err); return ok }

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
