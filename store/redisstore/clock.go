package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/semelhq/semel"
)

// syncEvery is how old a reading of the servers' clocks may be.
const syncEvery = 10 * time.Second

// clock is the servers' clock without a round trip: an offset to the monotonic
// clock of this process. The offset only rises, so the clock never goes back, and
// it is taken such that the clock is never ahead of the server's: a reading counts
// from when it arrived. So a process that starts later does not read less.
type clock struct {
	start  time.Time    // with its monotonic reading
	offset atomic.Int64 // nanoseconds from start to the servers' time
	synced atomic.Int64 // when it was read last, nanoseconds since start
	shift  atomic.Int64 // see Advance

	mu      sync.Mutex
	reading bool
}

func (c *clock) now() semel.Instant {
	return semel.Instant(int64(time.Since(c.start)) + c.offset.Load() + c.shift.Load())
}

// saw takes note of a server's time that has just arrived.
func (c *clock) saw(server semel.Instant) {
	since := int64(time.Since(c.start))
	for {
		old := c.offset.Load()
		if next := int64(server) - since; next <= old || c.offset.CompareAndSwap(old, next) {
			return
		}
	}
}

// Now is [semel.Store.Now]: Redis TIME, carried on by the monotonic clock of this
// process and read again every ten seconds, beside the calls.
//
// In a Cluster it is the latest clock of all masters and replicas that answer, so
// that a failover does not move it. Their clocks should be kept in step by NTP: by
// as much as they differ, a process that starts while the most advanced server is
// away may judge leases late.
func (s *Store) Now(context.Context) (semel.Instant, error) {
	if s.closed.Load() {
		return 0, errClosed
	}
	if time.Since(s.clock.start)-time.Duration(s.clock.synced.Load()) > syncEvery {
		s.syncSoon()
	}
	return s.clock.now(), nil
}

// syncSoon reads the servers' clocks in the background, unless that is being done.
func (s *Store) syncSoon() {
	if s.enter() != nil {
		return
	}
	defer s.leave()
	s.clock.mu.Lock()
	defer s.clock.mu.Unlock()
	if s.clock.reading {
		return
	}
	s.clock.reading = true
	s.work.Go(func() {
		ctx, cancel := context.WithTimeout(s.life, s.opts.Timeout)
		defer cancel()
		// Without an answer the clock goes on as it did; the next call after
		// a while tries again.
		_ = s.syncClock(ctx)
		s.clock.synced.Store(int64(time.Since(s.clock.start)))
		s.clock.mu.Lock()
		s.clock.reading = false
		s.clock.mu.Unlock()
	})
}

// syncClock reads the clock of every server. One answer is enough.
func (s *Store) syncClock(ctx context.Context) error {
	var mu sync.Mutex
	var failed error
	heard := false
	s.link.onEach(ctx, func(ctx context.Context, addr string, c rueidis.Client) {
		at, err := readTime(ctx, c)
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			failed = fmt.Errorf("redisstore: the time of %s: %w", addr, err)
			return
		}
		heard = true
		s.clock.saw(at)
	})
	if heard {
		return nil
	}
	return failed
}

func readTime(ctx context.Context, c rueidis.Client) (semel.Instant, error) {
	parts, err := c.Do(ctx, c.B().Time().Build()).AsStrSlice()
	if err != nil {
		return 0, err
	}
	if len(parts) != 2 {
		return 0, fmt.Errorf("TIME has %d parts", len(parts))
	}
	sec, err := strconv.ParseInt(parts[0], 10, 64)
	if err != nil {
		return 0, err
	}
	usec, err := strconv.ParseInt(parts[1], 10, 64)
	if err != nil {
		return 0, err
	}
	return semel.InstantOf(time.Unix(sec, usec*1000)), nil
}

// Advance moves the clock of this Store forward, for tests. Other Stores on the
// same servers do not see it.
func (s *Store) Advance(d time.Duration) { s.clock.shift.Add(int64(d)) }
