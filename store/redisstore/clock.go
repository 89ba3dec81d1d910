package redisstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/rueidis"

	"github.com/semelhq/semel/internal/bootclock"
	"github.com/semelhq/semel/internal/offsetclock"
	"github.com/semelhq/semel/store"
)

// clockBound is more than the servers' clocks differ if NTP keeps them in step.
const clockBound = time.Second

// Now is [store.Store.Now]: Redis TIME, but not its leaps (see [store.Timekeeper]). The store
// advances it by this machine's clocks and reads it again every three seconds in the background.
//
// It fails if the store hasn't been able to read the servers' clock for a minute, or since the
// machine was suspended. In a Cluster it is the median of the clocks of all masters and replicas
// that answer, so neither a failover nor one wrong server moves it.
func (s *Store) Now(ctx context.Context) (store.Instant, error) {
	if s.closed.Load() {
		return 0, errClosed
	}
	now, err := s.clock.Now(ctx)
	if err != nil {
		return 0, fmt.Errorf("redisstore: now: %w", err)
	}
	return now, nil
}

func (s *Store) makeClock() {
	s.readTime = readTime
	s.clock.Machine, s.clock.Bound, s.clock.Ask = offsetclock.Machine(), clockBound, s.askTime
	s.clock.Boot, s.clock.Noted, s.clock.Note = bootclock.Now, s.noted, s.note
	s.clock.Beside = func(f func(ctx context.Context)) error {
		if err := s.enter(); err != nil {
			return err
		}
		defer s.leave()
		s.work.Go(func() {
			ctx, cancel := context.WithTimeout(s.life, s.opts.Timeout)
			defer cancel()
			f(ctx)
		})
		return nil
	}
}

// noted returns the notes of all processes. Earlier programs used another key, with only the
// latest time.
func (s *Store) noted(ctx context.Context) (string, error) {
	c := s.link.client()
	text, err := c.Do(ctx, c.B().Get().Key(s.keys.time).Build()).ToString()
	if !rueidis.IsRedisNil(err) {
		return text, s.keyError(s.keys.time, err)
	}
	us, err := c.Do(ctx, c.B().Get().Key(s.keys.clock).Build()).AsInt64()
	if rueidis.IsRedisNil(err) {
		return "", nil
	}
	return offsetclock.Note{At: store.Instant(us) * 1000}.String(), s.keyError(s.keys.clock, err)
}

func (s *Store) keyError(key string, err error) error {
	if err != nil {
		return fmt.Errorf("the key %s: %w", key, err)
	}
	return nil
}

func (s *Store) note(ctx context.Context, was, next string) error {
	if _, err := offsetclock.ParseNote(was); err != nil {
		return err
	}
	_, err := s.evalAll(ctx, scriptNote, []run{{[]string{s.keys.time}, []string{was, next}}})
	return err
}

// ClockState is [store.Timekeeper.ClockState].
func (s *Store) ClockState(now store.Instant) store.ClockState { return s.clock.State(now) }

// AcceptClock is [store.Timekeeper.AcceptClock]. A crash before the note is written changes
// nothing.
func (s *Store) AcceptClock(ctx context.Context) (store.ClockState, error) {
	if err := s.enter(); err != nil {
		return store.ClockState{}, err
	}
	defer s.leave()
	return s.clock.Accept(ctx, false)
}

// askTime reads the clocks of all servers and returns the median of the answers.
func (s *Store) askTime(ctx context.Context) (offsetclock.Reading, error) {
	all, err := askEach(s.link, func(c rueidis.Client) (r offsetclock.Reading, err error) {
		r.Asked = s.clock.Machine()
		r.At, err = s.readTime(ctx, c)
		r.Came = s.clock.Machine()
		return r, err
	})
	if err != nil {
		return offsetclock.Reading{}, fmt.Errorf("the time of %w", err)
	}
	slices.SortFunc(all, func(a, b offsetclock.Reading) int {
		return cmp.Compare(int64(a.At)-int64(a.Came.Mono), int64(b.At)-int64(b.Came.Mono))
	})
	return all[len(all)/2], nil
}

func readTime(ctx context.Context, c rueidis.Client) (store.Instant, error) {
	parts, err := c.Do(ctx, c.B().Time().Build()).AsIntSlice()
	if err == nil && len(parts) != 2 {
		err = fmt.Errorf("TIME has %d parts", len(parts))
	}
	if err != nil {
		return 0, err
	}
	return store.InstantOf(time.Unix(parts[0], parts[1]*1000)), nil
}
