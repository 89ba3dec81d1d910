package pgstore

import (
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/pgtest"
	"github.com/semelhq/semel/store/storetest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

func TestContract(t *testing.T) {
	t.Parallel()
	storetest.Run(t, storetest.Harness{Name: "pgstore", Run: contractEnv(pgtest.Shared(t), nil)})
}

// TestContractThroughPooler has sessions that forget everything between two
// statements.
func TestContractThroughPooler(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute, which it mostly waits")
	}
	t.Parallel()
	storetest.Run(t, storetest.Harness{Name: "pgstore through a pooler", Run: contractEnv(pgtest.Shared(t), &Options{Pooler: true, forget: true})})
}

// contractEnv runs bodies of the suite on schemas of one database.
func contractEnv(server *pgtest.Server, opts *Options) func(t *testing.T, body func(*testing.T, storetest.Env)) {
	return func(t *testing.T, body func(*testing.T, storetest.Env)) {
		url := server.URL(server.Database(t))
		o := Options{}
		if opts != nil {
			o = *opts
		}
		o.Migrate, o.shift = true, new(atomic.Int64)
		o.AcquireTimeout = 5 * time.Second // a machine that runs many suites at once may take a while to connect
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
