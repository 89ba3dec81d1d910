package pebblestore

import (
	"context"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"github.com/semelhq/semel/internal/bootclock"
	"github.com/semelhq/semel/internal/offsetclock"
	"github.com/semelhq/semel/store"
)

// clock is the store's time: an [offsetclock.Clock] over the wall clock of this machine. No
// other process works on the directory, so its notes stay in memory until the next batch.
type clock struct {
	offsetclock.Clock
	noted   atomic.Pointer[offsetclock.Note]
	batched offsetclock.Note // the last one written with a batch, without a time
}

// start continues from what the directory has. No time that the store has returned is after at.
func (c *clock) start(at store.Instant, note offsetclock.Note, m machineClocks) error {
	c.batched = note
	note.At = max(note.At, at)
	c.noted.Store(&note)
	c.Machine, c.Boot, c.Bound = m.now, m.boot, offsetclock.Leap
	c.Ask = func(context.Context) (offsetclock.Reading, error) {
		now := c.Machine()
		return offsetclock.Reading{At: store.Instant(now.Wall), Asked: now, Came: now}, nil
	}
	c.Noted = func(context.Context) (string, error) { return c.noted.Load().String(), nil }
	c.Note = func(_ context.Context, _, next string) error { // only one reading runs at a time
		n, err := offsetclock.ParseNote(next)
		if err == nil {
			c.noted.Store(&n)
		}
		return err
	}
	c.Beside = func(f func(ctx context.Context)) error {
		f(context.Background())
		return nil
	}
	return c.Read(context.Background())
}

// now returns the time. The wall clock can always be read.
func (c *clock) now() store.Instant {
	for {
		at, err := c.Now(context.Background())
		if err == nil {
			return at
		} // the machine slept between two readings of its clocks, over and over
	}
}

// put adds the clock's note to a batch, if more has changed than the latest time, which every
// batch has.
func (c *clock) put(b *pebble.Batch) {
	n := *c.noted.Load()
	n.At = c.batched.At
	if n.BootOff-c.batched.BootOff < offsetclock.Leap && n.Boot == c.batched.Boot {
		n.BootOff = c.batched.BootOff
	}
	if n != c.batched {
		c.batched = n
		must(b.Set(clockKey, []byte(n.String()), nil))
	}
}

// machineClocks are the clocks of the machine, which tests replace.
type machineClocks struct {
	now  func() offsetclock.Moment
	boot func() bootclock.Reading
}

func systemTime() machineClocks { return machineClocks{offsetclock.Machine(), bootclock.Now} }

// Now is [store.Store.Now]: the wall clock, except that it doesn't follow leaps at once and
// never goes back. See [store.Timekeeper].
func (s *Store) Now(ctx context.Context) (store.Instant, error) {
	if s.closed.Load() {
		return 0, errClosed
	}
	return s.clock.now(), nil
}

// ClockState is [store.Timekeeper.ClockState].
func (s *Store) ClockState(now store.Instant) store.ClockState { return s.clock.State(now) }

// AcceptClock is [store.Timekeeper.AcceptClock], and durable when it returns. If a crash comes
// first, the store keeps waiting for the leap.
func (s *Store) AcceptClock(ctx context.Context) (store.ClockState, error) {
	if err := s.enterToWrite(ctx); err != nil {
		return store.ClockState{}, err
	}
	defer s.leave()
	state, err := s.clock.Accept(ctx, true)
	if err == nil {
		err = s.writeBare(ctx, &op{})
	}
	return state, err
}
