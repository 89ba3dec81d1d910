package pgstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/offsetclock"
	"github.com/semelhq/semel/internal/rig/pgtest"
	"github.com/semelhq/semel/internal/rig/thorough"
	"github.com/semelhq/semel/store/storetest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

func TestContract(t *testing.T) {
	t.Parallel()
	storetest.Run(t, storetest.Harness{Name: "pgstore", Parallel: true, Run: contractEnv(t, pgtest.Shared(t), nil)})
}

// TestContractThroughPooler has a PgBouncer between, so each transaction goes to another
// session of the server. The store is not told of it.
func TestContractThroughPooler(t *testing.T) {
	thorough.Only(t, "the contract, with a pooler between")
	t.Parallel()
	// Its sessions are there for a second or two after each case.
	server := pgtest.Start(t, &pgtest.Options{Settings: map[string]string{"max_connections": "600"}})
	storetest.Run(t, storetest.Harness{Name: "pgstore through a pooler", Parallel: true, Run: contractEnv(t, server, server.Pooler(t, 8).URL)})
}

// contractEnv runs bodies of the suite in schemas of a database of a server, at the address
// of a pooler if there is one. To make a database takes longer than most of the bodies.
func contractEnv(t *testing.T, server *pgtest.Server, pooled func(database string) string) func(t *testing.T, body func(*testing.T, storetest.Env)) {
	database := server.Database(t)
	var schemas atomic.Int64
	return func(t *testing.T, body func(*testing.T, storetest.Env)) {
		url := server.URL(database)
		var o Options
		if pooled != nil {
			o.ListenURL = url
			url = pooled(database)
		}
		o.Migrate, o.Schema = true, fmt.Sprint("body_", schemas.Add(1))
		// A machine that runs many suites at once may take a while to connect, and to commit.
		o.AcquireTimeout, o.LockTimeout = 30*time.Second, 5*time.Second
		var leapt atomic.Int64
		look := func(s *Store) *Store {
			ask := s.clock.Ask
			s.clock.Ask = func(ctx context.Context) (offsetclock.Reading, error) {
				r, err := ask(ctx)
				r.At = r.At.Add(time.Duration(leapt.Load()))
				return r, err
			}
			if leapt.Load() != 0 { // it has begun by the true clock
				s.clock.Forget()
			}
			return s
		}
		s := look(mustOpen(t, url, &o))
		t.Cleanup(func() { mustClose(t, s) })
		body(t, storetest.Env{
			Store:   s,
			Advance: func(d time.Duration) { s.clock.Advance(d) },
			Leap: func(by time.Duration) {
				leapt.Add(int64(by))
				noError(t, s.clock.Read(t.Context()))
			},
			Reopen: func() semel.Store {
				mustClose(t, s)
				passed := s.clock.Advanced()
				s = look(mustOpen(t, url, &o))
				s.clock.Advance(passed)
				return s
			},
		})
	}
}

// mustOpen opens a store that waits longer for a connection and for answers than a real one,
// unless opts say how long: on a busy machine they take their time.
func mustOpen(t testing.TB, url string, opts *Options) *Store {
	t.Helper()
	var o Options
	if opts != nil {
		o = *opts
	}
	o.AcquireTimeout = cmp.Or(o.AcquireTimeout, 10*time.Second)
	o.answer, o.connect = cmp.Or(o.answer, time.Minute), cmp.Or(o.connect, time.Minute)
	for began := time.Now(); ; {
		s, err := Open(t.Context(), url, &o)
		if err == nil {
			return s
		}
		// A short patience is for what comes after; a busy machine may not open a store in it.
		if time.Since(began) > time.Minute || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
	}
}

func mustClose(t testing.TB, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}
