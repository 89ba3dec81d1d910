package bench

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/pgtest"
	"github.com/semelhq/semel/internal/rig/redistest"
	"github.com/semelhq/semel/store/memstore"
	"github.com/semelhq/semel/store/pebblestore"
	"github.com/semelhq/semel/store/pgstore"
	"github.com/semelhq/semel/store/redisstore"
)

var (
	callers = flag.Int("callers", 64, "how many callers work at the same time")
	size    = flag.Int("bytes", 1024, "size of each outcome, request and answer, in bytes")
	records = flag.Int("records", 1_000, "how many records a store has before it is measured")
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// place is where stores are made, and what they are compared with.
type place struct {
	// dir is where the embedded store keeps its files.
	dir  string
	open func(name string) (semel.Store, error)
	// bare makes the step of a program without an engine; nil if there is nothing to
	// compare with.
	bare func(b *testing.B, t *target) step
}

// kinds are the stores to measure. Each is told to be durable: Redis syncs its file before it
// answers.
var kinds = []struct {
	name  string
	place func(b *testing.B) place
}{
	{"memory", func(*testing.B) place {
		return place{open: func(string) (semel.Store, error) { return memstore.New(), nil }}
	}},
	{"pebble", func(b *testing.B) place {
		dir := b.TempDir()
		return place{
			dir:  dir,
			open: func(name string) (semel.Store, error) { return pebblestore.Open(filepath.Join(dir, name), nil) },
			bare: barePebble,
		}
	}},
	{"postgres", func(b *testing.B) place {
		s := pgtest.Shared(b)
		url := s.URL(s.Database(b))
		return place{
			open: func(name string) (semel.Store, error) {
				// Some callers wait longer than the service would let them; that is
				// part of the load.
				return pgstore.Open(b.Context(), url, &pgstore.Options{Schema: name, Migrate: true, AcquireTimeout: semel.DefaultStoreTimeout})
			},
			bare: func(b *testing.B, t *target) step { return barePostgres(b, url, t) },
		}
	}},
	{"redis", func(b *testing.B) place { return redisAt(b, redistest.Start(b, "always").URL()) }},
	{"cluster", func(b *testing.B) place {
		return redisAt(b, redistest.StartCluster(b, "always", redistest.Patient...).URL())
	}},
}

func redisAt(b *testing.B, url string) place {
	return place{
		open: func(name string) (semel.Store, error) {
			return redisstore.Open(b.Context(), url, &redisstore.Options{Prefix: name})
		},
		bare: func(b *testing.B, t *target) step { return bareRedis(b, url, t) },
	}
}

// store opens an empty store until the end of the benchmark.
func (p *place) store(b *testing.B, name string) semel.Store {
	b.Helper()
	st, err := p.open(name)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := st.Close(); err != nil {
			b.Error(err)
		}
	})
	return st
}

// engineOn runs an engine on a store until the end of the benchmark.
func engineOn(b *testing.B, st semel.Store, opts *semel.Options) *semel.Engine {
	b.Helper()
	e, err := semel.New(st, opts)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := e.Close(context.Background()); err != nil {
			b.Error(err)
		}
	})
	return e
}
