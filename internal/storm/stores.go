package storm

import (
	"context"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/pgtest"
	"github.com/semelhq/semel/internal/redistest"
	"github.com/semelhq/semel/store/pebblestore"
	"github.com/semelhq/semel/store/pgstore"
	"github.com/semelhq/semel/store/redisstore"
)

// Store is an empty store, and how many nodes can share it.
type Store struct {
	URL   string
	Nodes int
}

// OnEach runs a test on each durable store: on Pebble with one node, and on private servers
// of PostgreSQL and Redis with two.
func OnEach(t *testing.T, run func(t *testing.T, store Store)) {
	t.Run("on Pebble", func(t *testing.T) { run(t, Store{pebble + t.TempDir(), 1}) })
	t.Run("on PostgreSQL", func(t *testing.T) {
		server := pgtest.Shared(t)
		run(t, Store{server.URL(server.Database(t)), 2})
	})
	t.Run("on Redis", func(t *testing.T) { run(t, Store{redistest.Start(t, "always").URL(), 2}) })
}

const pebble = "pebble:"

// Open opens the store at the URL of a [Store]. No node may have it open if it is one of
// Pebble.
func Open(ctx context.Context, url string) (semel.Store, error) {
	if dir, ok := strings.CutPrefix(url, pebble); ok {
		return pebblestore.Open(dir, nil)
	}
	if strings.HasPrefix(url, "redis:") {
		return redisstore.Open(ctx, url, nil)
	}
	return pgstore.Open(ctx, url, &pgstore.Options{Migrate: true})
}
