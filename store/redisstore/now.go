package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/semelhq/semel"
)

// Now is [semel.Store.Now]: Redis TIME, carried on by the monotonic clock of this
// process and read again every ten seconds, beside the calls.
//
// It is an error where the servers' clock was not read for five minutes and can't be, and
// where it can't be relied on, see clock.go. In a Cluster it is the middle one of the
// clocks of all masters and replicas that answer, so neither a failover moves it nor one
// server that is wrong.
func (s *Store) Now(ctx context.Context) (semel.Instant, error) {
	if s.closed.Load() {
		return 0, errClosed
	}
	c := &s.clock
	m := c.source()
	k := c.state.Load()
	if !k.holds(m) {
		return s.nowByReading(ctx)
	}
	if m.mono-time.Duration(c.asked.Load()) > syncEvery {
		_, _ = s.readSoon() // or the next call does
	}
	return c.give(k.now(m)), nil
}

// nowByReading is Now where the clock has to be read first.
func (s *Store) nowByReading(ctx context.Context) (semel.Instant, error) {
	c := &s.clock
	var err error
	for range 2 { // a reading that is under way may be older than the cause of another
		k, m := c.state.Load(), c.source()
		if k.stopped != nil && m.mono-time.Duration(c.asked.Load()) < askAgain {
			return 0, fmt.Errorf("redisstore: %w", k.stopped)
		}
		going, failed := s.readSoon()
		if failed != nil {
			return 0, failed
		}
		select {
		case <-going.over:
			err = going.err
		case <-ctx.Done():
			return 0, fmt.Errorf("redisstore: the servers' clock: %w", ctx.Err())
		}
		k, m = c.state.Load(), c.source()
		if k.holds(m) {
			return c.give(k.now(m)), nil
		}
	}
	return 0, err
}

// readSoon reads the servers' clock in the background, or joins whoever does.
func (s *Store) readSoon() (*attempt, error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.leave()
	c := &s.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.going != nil {
		return c.going, nil
	}
	a := &attempt{over: make(chan struct{})}
	c.going = a
	s.work.Go(func() {
		ctx, cancel := context.WithTimeout(s.life, s.opts.Timeout)
		defer cancel()
		a.err = s.readClock(ctx)
		c.mu.Lock()
		c.going = nil
		c.mu.Unlock()
		close(a.over)
	})
	return a, nil
}

// readClock reads the servers' clock, once at a time. Without an answer the clock goes on
// as it did, for as long as it may.
func (s *Store) readClock(ctx context.Context) error {
	c := &s.clock
	defer func() { c.asked.Store(int64(c.source().mono)) }()
	note, err := s.noted(ctx)
	if err != nil && !s.link.cluster {
		return err
	} // In a Cluster its master may be down: what it protects from is rare enough.
	high := max(note, semel.Instant(c.given.Load()))
	r, err := s.askTime(ctx)
	if err != nil {
		return err
	}
	k := c.state.Load().next(r, high)
	c.state.Store(k)
	if k.stopped != nil {
		return fmt.Errorf("redisstore: %w", k.stopped)
	}
	if k.agreed && k.at > note {
		s.note(ctx, k.at)
	}
	return nil
}

// noted is how far the clock has come, as the store has it. None is zero.
func (s *Store) noted(ctx context.Context) (semel.Instant, error) {
	c := s.link.client()
	us, err := c.Do(ctx, c.B().Get().Key(s.keys.clock).Build()).AsInt64()
	switch {
	case rueidis.IsRedisNil(err):
		return 0, nil
	case err != nil:
		return 0, s.failed("the key "+s.keys.clock, err)
	}
	return semel.Instant(us) * 1000, nil
}

// note notes how far the clock has come. A crash before it leaves what was noted ten
// seconds ago, or more; so does an error. It is not needed for what the clock says now.
func (s *Store) note(ctx context.Context, at semel.Instant) {
	_ = eval(ctx, s.link.client(), scriptCome, []string{s.keys.clock}, []string{strconv.FormatInt(int64(at)/1000, 10)})
}

// askTime reads the clock of every server and returns the middle one. One answer is
// enough.
func (s *Store) askTime(ctx context.Context) (reading, error) {
	var mu sync.Mutex
	var failed error
	var all []reading
	s.link.onEach(ctx, func(ctx context.Context, addr string, c rueidis.Client) {
		r := reading{asked: s.clock.source()}
		at, err := s.clock.readTime(ctx, c)
		r.at, r.came = at, s.clock.source()
		if err == nil && r.suspended() {
			err = errSuspended
		}
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			failed = fmt.Errorf("redisstore: the time of %s: %w", addr, err)
			return
		}
		all = append(all, r)
	})
	if len(all) == 0 {
		return reading{}, failed
	}
	slices.SortFunc(all, func(a, b reading) int {
		return cmp.Compare(int64(a.at)-int64(a.came.mono), int64(b.at)-int64(b.came.mono))
	})
	return all[len(all)/2], nil
}

// errSuspended means that the machine was suspended while it waited for an answer.
var errSuspended = errors.New("the answer is as old as the machine was suspended for")

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
