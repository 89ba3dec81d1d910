package pgstore

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/semelhq/semel/internal/bootclock"
	"github.com/semelhq/semel/internal/offsetclock"
	"github.com/semelhq/semel/store"
)

// clockBound is how far the server's clock may go back, and how far this machine's clocks may
// differ, before it counts: drift takes hours to get there.
const clockBound = 100 * time.Millisecond

// Now is [store.Store.Now]: the server's clock, but not its leaps (see [store.Timekeeper]). The
// store advances it by this machine's clocks and reads it again every three seconds, beside the
// calls. Now waits for the server only if its clock couldn't be read for a minute, or if this
// machine was suspended or its clock set.
func (s *Store) Now(ctx context.Context) (store.Instant, error) {
	if s.closed.Load() {
		return 0, errClosed
	}
	now, err := s.clock.Now(ctx)
	if err != nil {
		return 0, fmt.Errorf("pgstore: now: %w", err)
	}
	return now, nil
}

func (s *Store) makeClock() {
	s.clock.Machine, s.clock.Bound, s.clock.Ask = s.opts.machine, clockBound, s.askTime
	s.clock.Boot, s.clock.Noted, s.clock.Note = bootclock.Now, s.noted, s.note
	s.clock.Beside = func(f func(ctx context.Context)) error {
		s.mu.Lock() // so that Close waits for it
		defer s.mu.Unlock()
		if s.closed.Load() {
			return errClosed
		}
		s.background.Go(func() {
			ctx, cancel := context.WithTimeout(s.life, offsetclock.Period)
			defer cancel()
			f(ctx)
		})
		return nil
	}
}

// askTime reads the server's clock.
func (s *Store) askTime(ctx context.Context) (r offsetclock.Reading, err error) {
	err = s.read(ctx, func(conn *pgx.Conn) error {
		r.Asked = s.clock.Machine()
		var at time.Time
		err := conn.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&at)
		r.At, r.Came = store.InstantOf(at), s.clock.Machine()
		return err
	})
	if err != nil && !s.closed.Load() {
		s.opts.Logger.Warn("the clock of PostgreSQL can't be read", slog.Any("error", err))
	}
	return r, err
}

// noted reads the notes of the stores of all processes.
func (s *Store) noted(ctx context.Context) (string, error) {
	return one(query(ctx, s, text, newStatement("SELECT note FROM "+name(s.opts.Schema, clockTable))))
}

// note replaces a note if nobody else has. It doesn't wait for a disk or a standby: if a crash
// of the server loses a note, the previous one is only seconds older.
func (s *Store) note(ctx context.Context, was, next string) error {
	_, err := query(ctx, s, ignore, newStatement("UPDATE "+name(s.opts.Schema, clockTable)+" SET note = $2::text"+
		" FROM (SELECT set_config('synchronous_commit', 'off', true)) AS commits WHERE note = $1::text", []byte(was), []byte(next)))
	return err
}

// clockTable has one row.
const clockTable = "semel_clock"

// ClockState is [store.Timekeeper.ClockState].
func (s *Store) ClockState(now store.Instant) store.ClockState { return s.clock.State(now) }

// AcceptClock is [store.Timekeeper.AcceptClock]. A crash before the note is written changes
// nothing.
func (s *Store) AcceptClock(ctx context.Context) (store.ClockState, error) {
	if err := s.usable(ctx); err != nil {
		return store.ClockState{}, err
	}
	return s.clock.Accept(ctx, false)
}
