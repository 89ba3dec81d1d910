package pgstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
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
)

// clock is the server's clock, carried on by that of the process.
type clock struct {
	base  time.Time // with its monotonic reading
	shift *atomic.Int64
	last  atomic.Int64 // the latest that was given out

	mu     sync.RWMutex
	offset time.Duration // of the server's clock, from the time since base
	read   time.Duration // when it was read last, since base
	known  bool
}

func (c *clock) start(shift *atomic.Int64) { c.base, c.shift = time.Now(), shift }

// sample takes note that the server's clock showed a time at some moment between
// two, counted from base. The offset is then known to lie between two bounds. One
// that is within them stays; otherwise it becomes the lower bound, so that the
// clock is never ahead of the server's.
func (c *clock) sample(server semel.Instant, before, after time.Duration) {
	low, high := time.Duration(server)-after, time.Duration(server)-before
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known || c.offset < low || c.offset > high {
		c.offset = low
	}
	c.known, c.read = true, after
}

// now is the time, and whether it was compared with the server's lately.
func (c *clock) now() (at semel.Instant, fresh bool) {
	c.mu.RLock()
	since := time.Since(c.base)
	t := int64(since+c.offset) + c.shift.Load()
	fresh = c.known && since-c.read < clockLimit
	c.mu.RUnlock()
	for {
		last := c.last.Load()
		if t <= last {
			return semel.Instant(last), fresh
		}
		if c.last.CompareAndSwap(last, t) {
			return semel.Instant(t), fresh
		}
	}
}

// Now is [semel.Store.Now]. It asks the server only when its clock could not be
// read for a minute.
func (s *Store) Now(ctx context.Context) (semel.Instant, error) {
	if s.closed.Load() {
		return 0, errClosed
	}
	at, fresh := s.clock.now()
	if fresh {
		return at, nil
	}
	if err := s.readClock(ctx); err != nil {
		return 0, err
	}
	at, _ = s.clock.now()
	return at, nil
}

// readClock compares the clock with the server's.
func (s *Store) readClock(ctx context.Context) error {
	st := newStatement(clockText)
	err := s.onRead(ctx, func(conn *pgconn.PgConn) error {
		for range clockSamples {
			before := time.Since(s.clock.base)
			err := execute(ctx, conn, st, func(row [][]byte) error {
				at, err := clockRow(row)
				if err == nil {
					s.clock.sample(at, before, time.Since(s.clock.base))
				}
				return err
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
			s.opts.Logger.Warn("the clock of PostgreSQL can't be read", "error", err)
		}
	}
}
