package pgstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/semelhq/semel"
)

const (
	// clockPeriod is how often the server's clock is read. Until then the two
	// clocks drift apart by a fraction of a millisecond.
	clockPeriod = 3 * time.Second
	// clockLimit is how long the clock is carried on when it can't be read.
	clockLimit = time.Minute
	// clockSamples are taken at a time; the quickest counts for most.
	clockSamples = 3
	// clockBound is how far two clocks may part before it counts. Drift takes hours
	// to that, and no lease of a second is much longer or shorter for it.
	clockBound = 100 * time.Millisecond
	// clockLeap is how far the server's clock may be ahead of where it should be by
	// now before that is believed at once.
	clockLeap = time.Second
	// clockConfirm is after how long another reading confirms a leap.
	clockConfirm = time.Second
)

// clock is the server's clock, carried on by that of the machine.
//
// What it gave out it never takes back: the fence of an identity that was purged is
// the clock alone, and must not come twice. It follows that the clock has no way back
// when the server's was ahead for a while. It stands still where the server's clock is
// a little behind what was given out, and gives nothing where that is more, until the
// server has caught up: to stand still for long would give leases that never end, and
// to go on alone would end those that others have given by the right time.
//
// A leap of the server's clock ends all leases, so it is believed only where the
// machine's wall clock has leapt with it, as after a suspension, or where another
// reading says the same a while later. Until then nothing is given out: neither the
// time before it, by which leases that are over would be given, nor the one after it.
//
// The machine's monotonic clock stands still while the machine is suspended, and the
// wall clock does not. So when the two have parted since the last reading, what is
// carried on is worth nothing, and the server is asked first.
type clock struct {
	machine func() moment
	shift   *atomic.Int64
	last    atomic.Int64  // the latest that was given out
	turn    chan struct{} // holds one while the server is asked

	mu        sync.RWMutex
	known     bool
	low, high time.Duration // between these is the server's clock, from the machine's monotonic one
	at        moment        // of the last reading
	leap      *leap         // that is not believed yet
}

// moment is one by the two clocks of a machine, both counted from the same one.
type moment struct{ monotonic, wall time.Duration }

// parted is how far the wall clock is ahead.
func (m moment) parted() time.Duration { return m.wall - m.monotonic }

// apart reports whether the clocks of the machine have parted from one moment to
// another.
func apart(a, b moment) bool { return (a.parted() - b.parted()).Abs() > clockBound }

// leap is a reading of the server's clock that is far ahead.
type leap struct {
	low, high time.Duration
	at        time.Duration // when, by the monotonic clock
}

// machineClock are the clocks of this machine from now on.
func machineClock() func() moment {
	start := time.Now()
	return func() moment {
		now := time.Now()
		return moment{monotonic: now.Sub(start), wall: now.Round(0).Sub(start.Round(0))}
	}
}

func (c *clock) start(machine func() moment, shift *atomic.Int64) {
	c.machine, c.shift, c.turn = machine, shift, make(chan struct{}, 1)
}

var (
	// errUnsure means that the server has to be asked.
	errUnsure = errors.New("pgstore: the clock was not compared with the server's lately")
	errAsleep = errors.New("the machine was suspended, or its clock set, while the server's clock was read")
	errLeapt  = errors.New("the server's clock is far ahead of where it should be by now: nothing is decided until another reading confirms it")
	errBehind = errors.New("the server's clock has gone back: it was ahead for a while, or was set back. Nothing is decided until it has caught up with what it showed: set it right, or wait")
)

// sample takes note that the server's clock showed a time at some moment between
// two. The offset is then known to lie between two bounds. One that is within them
// stays; otherwise it becomes the lower bound, so that the clock is never ahead of the
// server's.
func (c *clock) sample(server semel.Instant, before, after moment) error {
	if apart(before, after) {
		return errAsleep
	}
	low, high := time.Duration(server)-after.monotonic, time.Duration(server)-before.monotonic
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known {
		suspended := max(after.parted()-c.at.parted(), 0)
		if low > c.high+suspended+clockLeap && !c.confirmed(low, high, after.monotonic) {
			return errLeapt
		}
	}
	if !c.known || c.low < low || c.low > high {
		c.low = low
	}
	c.known, c.high, c.at, c.leap = true, high, after, nil
	return nil
}

// confirmed reports whether a reading says the same as one that was far ahead already.
// The caller holds c.mu.
func (c *clock) confirmed(low, high, at time.Duration) bool {
	if c.leap == nil || low > c.leap.high+clockBound || high < c.leap.low-clockBound {
		c.leap = &leap{low, high, at}
		return false
	}
	return at-c.leap.at >= clockConfirm
}

// now is the time. Where the server has to be asked for it the error is errUnsure.
func (c *clock) now() (semel.Instant, error) {
	// What was given out before the machine's clocks are looked at: others may go on
	// meanwhile, for as long as this goroutine has to wait.
	given := c.last.Load()
	m, shift := c.machine(), time.Duration(c.shift.Load())
	c.mu.RLock()
	sure := c.known && c.leap == nil && m.monotonic-c.at.monotonic < clockLimit && !apart(m, c.at)
	low, high := int64(m.monotonic+c.low+shift), int64(m.monotonic+c.high+shift)
	c.mu.RUnlock()
	switch {
	case !sure:
		return 0, errUnsure
	case given > high+int64(clockBound):
		return 0, fmt.Errorf("pgstore: %w (%v)", errBehind, time.Duration(given-high).Round(time.Millisecond))
	}
	for {
		last := c.last.Load()
		if low <= last {
			return semel.Instant(last), nil
		}
		if c.last.CompareAndSwap(last, low) {
			return semel.Instant(low), nil
		}
	}
}

// Now is [semel.Store.Now]. It asks the server only when its clock could not be read
// for a minute, when this machine was suspended or its clock set, and while a leap of
// the server's clock is not confirmed. Where the server's clock has gone back it fails
// until that has caught up.
func (s *Store) Now(ctx context.Context) (semel.Instant, error) {
	if s.closed.Load() {
		return 0, errClosed
	}
	at, err := s.clock.now()
	if !errors.Is(err, errUnsure) {
		return at, err
	}
	select {
	case s.clock.turn <- struct{}{}:
		defer func() { <-s.clock.turn }()
	case <-ctx.Done():
		return 0, fmt.Errorf("pgstore: read the clock: %w", ctx.Err())
	}
	if at, err = s.clock.now(); !errors.Is(err, errUnsure) {
		return at, err // another has asked
	}
	if err := s.readClock(ctx); err != nil {
		return 0, err
	}
	return s.clock.now()
}

// readClock compares the clock with the server's.
func (s *Store) readClock(ctx context.Context) error {
	st := newStatement(clockText)
	err := s.onRead(ctx, func(conn *pgconn.PgConn) error {
		for range clockSamples {
			before := s.clock.machine()
			err := execute(ctx, conn, st, func(row [][]byte) error {
				at, err := clockRow(row)
				if err != nil {
					return err
				}
				return s.clock.sample(at, before, s.clock.machine())
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("pgstore: read the clock: %w", err)
	}
	return nil
}

// clockText asks the server for the time.
var clockText = text{any: "SELECT clock_timestamp()", direct: "SELECT clock_timestamp()"}

// clockRow is the server's answer.
func clockRow(row [][]byte) (semel.Instant, error) {
	if len(row) != 1 || len(row[0]) != 8 {
		return 0, errors.New("the server's clock gives no time")
	}
	return semel.Instant((int64(binary.BigEndian.Uint64(row[0])) + epoch2000) * 1000), nil
}

// keepClock reads the clock again and again.
func (s *Store) keepClock(ctx context.Context) {
	tick := time.NewTicker(clockPeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		limited, cancel := context.WithTimeout(ctx, clockPeriod)
		err := s.readClock(limited)
		cancel()
		if err != nil && ctx.Err() == nil {
			s.opts.Logger.Warn("the clock of PostgreSQL can't be read", slog.Any("error", err))
			continue
		}
		if _, err := s.clock.now(); err != nil && ctx.Err() == nil {
			s.opts.Logger.Error("nothing is decided", slog.Any("error", err))
		}
	}
}
