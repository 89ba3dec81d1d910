package pgstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/semelhq/semel/internal/rig/pgtest"
	"github.com/semelhq/semel/store"
)

// TestNothingIsCalledBack looks whether the driver asks the server to cancel what it
// does, which it does over a connection of its own.
func TestNothingIsCalledBack(t *testing.T) {
	server := pgtest.Shared(t)
	for _, c := range []struct {
		name   string
		config func(s *Store) *pgx.ConnConfig
		called bool
	}{
		{"by a connection of the store", func(s *Store) *pgx.ConnConfig { return s.writes.Config().ConnConfig }, false},
		{"by one that the driver makes its own way", func(s *Store) *pgx.ConnConfig {
			config := s.writes.Config().ConnConfig
			config.DialFunc = new(net.Dialer).DialContext
			return config
		}, true},
	} {
		for _, give := range []string{"a context that ends", "a connection that breaks"} {
			t.Run(c.name+", for "+give, func(t *testing.T) {
				t.Parallel() // the driver waits for the server to hang up, which it does not
				w := newWire(t, server)
				s := mustOpen(t, w.url(server.Database(t)), &Options{Migrate: true, noNotices: true})
				t.Cleanup(func() { mustClose(t, s) })
				conn, err := pgx.ConnectConfig(t.Context(), c.config(s))
				noError(t, err)
				told := make(chan struct{})
				w.set(func(x *exchange) {
					if len(x.sql) > 0 && x.sql[0] == "SELECT $1::text" {
						x.hang = true
						close(told)
					}
				})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				ended := make(chan error)
				go func() {
					_, err := conn.Exec(ctx, "SELECT $1::text", "stuck")
					ended <- err
				}()
				<-told
				if give == "a context that ends" {
					cancel()
				} else {
					w.cutAll(nil)
				}
				if err := <-ended; err == nil {
					t.Error("it was answered")
				}
				<-conn.PgConn().CleanupDone() // then it has asked, if it does
				if called := w.cancelled() > 0; called != c.called {
					t.Errorf("the server was asked: %v", called)
				}
			})
		}
	}
}

// cancelled is how often the server was asked.
func (w *wire) cancelled() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cancels
}

// TestCallsWithoutAnAnswer has answers to writes swallowed, one after the other, by a
// network that keeps the connections open. None of them will ever come, and the server is at
// work on none, so each connection is dropped.
func TestCallsWithoutAnAnswer(t *testing.T) {
	w, s := impatient(t)
	w.set(func(x *exchange) { x.hang = x.writes() })
	for i := range 3 * maxLate {
		isLost(t, s, fmt.Sprint(i))
	}
	w.set(nil)
	answered(t, s, "another")
	if n := w.cancelled(); n > 0 {
		t.Errorf("the server was asked %d times to cancel", n)
	}
}

// Sessions that the server is at work on stay there without their connections, so only a few
// connections are dropped. The rest wait, as long as that takes.
func TestFewConnectionsAreDroppedWhileTheServerIsAtWork(t *testing.T) {
	_, s := impatient(t)
	other, err := s.connect(t.Context())
	noError(t, err)
	t.Cleanup(func() { _ = other.Close(context.Background()) })
	tx, err := other.Begin(t.Context())
	noError(t, err)
	_, err = tx.Exec(t.Context(), "LOCK TABLE semel.semel_records")
	noError(t, err)
	for i := range maxLate {
		isLost(t, s, fmt.Sprint(i))
	}
	told := make(chan error)
	go func() {
		_, _, err := s.Apply(t.Context(), store.Write{Record: new(numbered("the last", 1))})
		told <- err
	}()
	select {
	case err := <-told:
		t.Errorf("one more connection was dropped: %v", err)
	case <-time.After((3) * s.opts.answer):
	}
	noError(t, tx.Rollback(t.Context()))
	<-told // by its answer, or dropped just before that came
	answered(t, s, "another")
}

// impatient is a store that waits for answers only shortly, on one connection for writes.
func impatient(t *testing.T) (*wire, *Store) {
	server := pgtest.Shared(t)
	w := newWire(t, server)
	s := mustOpen(t, w.url(server.Database(t)), &Options{Migrate: true, noNotices: true, MaxConns: 1, AcquireTimeout: 10 * time.Second, answer: 300 * time.Millisecond})
	t.Cleanup(func() { mustClose(t, s) })
	answered(t, s, "first")
	return w, s
}

// isLost makes a write that isn't answered.
func isLost(t *testing.T, s *Store, key string) {
	t.Helper()
	_, applied, err := s.Apply(t.Context(), store.Write{Record: new(numbered(key, 1))})
	if err == nil || applied || errors.Is(err, store.ErrNotApplied) {
		t.Errorf("a write that was not answered is told to be applied: %v, %v", applied, err)
	}
}

// answered makes a write until it is answered, for the machine may be slower than the limit.
func answered(t *testing.T, s *Store, key string) {
	t.Helper()
	await(t, "a write is answered", func() bool {
		_, _, err := s.Apply(t.Context(), store.Write{Record: new(numbered(key, 1))})
		return err == nil
	})
}
