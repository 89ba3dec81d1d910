package pgstore

import (
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/pgtest"
	"github.com/semelhq/semel/internal/thorough"
	"github.com/semelhq/semel/store/storetest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

func TestContract(t *testing.T) {
	t.Parallel()
	storetest.Run(t, storetest.Harness{Name: "pgstore", Run: contractEnv(pgtest.Shared(t), nil, nil)})
}

// TestContractThroughPooler has a PgBouncer between, so each transaction goes to another
// session of the server. The store is not told of it.
func TestContractThroughPooler(t *testing.T) {
	thorough.Only(t, "the contract, with a pooler between")
	t.Parallel()
	// Its sessions are there for a second or two after each case.
	server := pgtest.Start(t, &pgtest.Options{Settings: map[string]string{"max_connections": "600"}})
	storetest.Run(t, storetest.Harness{Name: "pgstore through a pooler", Run: contractEnv(server, server.Pooler(t, 8).URL, nil)})
}

// contractEnv runs bodies of the suite on databases of a server, at the addresses of a
// pooler if there is one.
func contractEnv(server *pgtest.Server, pooled func(database string) string, opts *Options) func(t *testing.T, body func(*testing.T, storetest.Env)) {
	return func(t *testing.T, body func(*testing.T, storetest.Env)) {
		database := server.Database(t)
		url := server.URL(database)
		o := Options{}
		if opts != nil {
			o = *opts
		}
		if pooled != nil {
			o.ListenURL = url
			url = pooled(database)
		}
		o.Migrate, o.shift = true, new(atomic.Int64)
		// A machine that runs many suites at once may take a while to connect, and to commit.
		o.AcquireTimeout, o.LockTimeout = 5*time.Second, 5*time.Second
		s := mustOpen(t, url, &o)
		t.Cleanup(func() { mustClose(t, s) })
		body(t, storetest.Env{
			Store:   s,
			Advance: func(d time.Duration) { o.shift.Add(int64(d)) },
			Reopen: func() semel.Store {
				mustClose(t, s)
				s = mustOpen(t, url, &o)
				return s
			},
		})
	}
}

func mustOpen(t testing.TB, url string, opts *Options) *Store {
	t.Helper()
	s, err := Open(t.Context(), url, opts)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func mustClose(t testing.TB, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}
