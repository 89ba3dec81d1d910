package peers

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/pgtest"
	"github.com/semelhq/semel/internal/rig/redistest"
	"github.com/semelhq/semel/internal/rig/turns"
	"github.com/semelhq/semel/store/memstore"
	"github.com/semelhq/semel/store/pgstore"
	"github.com/semelhq/semel/store/redisstore"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// do makes one call under a key and checks its answer. If replayed is set, the key has an
// outcome, and the answer must be that.
type do func(ctx context.Context, key string, replayed bool) error

// contest makes Semel and a peer take turns. If hot is above zero, callers repeat that many
// keys, each of which has an outcome; otherwise every key is new. It fails if an answer is
// wrong, never because of a ratio.
func contest(b *testing.B, peer string, callers, hot int, ours, theirs do) {
	b.Helper()
	namer := turns.NewCaller(callers)
	keys := make([]string, hot)
	for i := range keys {
		keys[i] = namer.Key()
		if err := errors.Join(ours(b.Context(), keys[i], false), theirs(b.Context(), keys[i], false)); err != nil {
			b.Fatal(err)
		}
	}
	load := func(name string, call do) turns.Load {
		return turns.Load{Name: name, Callers: callers, Step: func(ctx context.Context, c *turns.Caller) error {
			if hot > 0 {
				return call(ctx, keys[c.Rand.IntN(hot)], true)
			}
			return call(ctx, c.Key(), false)
		}}
	}
	got := turns.Compare(b, load("semel", ours), load(peer, theirs))
	b.ReportMetric(got[1].Allocs/got[0].Allocs, "allocs-ratio")
}

// onPostgres makes both sides on an empty database.
func onPostgres(b *testing.B) (ours, theirs do) {
	s := pgtest.Shared(b)
	url := s.URL(s.Database(b))
	// Some callers wait longer than the service would let them; that is part of the load.
	store, err := pgstore.Open(b.Context(), url, &pgstore.Options{Migrate: true, AcquireTimeout: semel.DefaultStoreTimeout})
	if err != nil {
		b.Fatal(err)
	}
	return calls(b, store), workflows(b, url)
}

func BenchmarkPeers(b *testing.B) {
	b.Run("middleware, memory", func(b *testing.B) {
		contest(b, "fiber", 1, 0, middleware(b, memstore.New()), fiberMiddleware(b, ""))
	})
	b.Run("middleware, Redis", func(b *testing.B) {
		url := redistest.Start(b, "always").URL()
		store, err := redisstore.Open(b.Context(), url, nil)
		if err != nil {
			b.Fatal(err)
		}
		contest(b, "fiber", 64, 0, middleware(b, store), fiberMiddleware(b, url))
	})
	for _, c := range []struct {
		name         string
		callers, hot int
	}{{"PostgreSQL", 64, 0}, {"PostgreSQL, hot duplicates", 64, 8}, {"PostgreSQL, one caller", 1, 0}} {
		b.Run(c.name, func(b *testing.B) {
			ours, theirs := onPostgres(b)
			contest(b, "dbos", c.callers, c.hot, ours, theirs)
		})
	}
}
