package benchstore

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store/memstore"
	"github.com/semelhq/semel/store/pebblestore"
)

// place is where the stores of a run are made.
type place interface {
	// open makes an empty store.
	open(ctx context.Context, name string) (semel.Store, error)
	// bare makes the loop that the engine is compared with.
	bare(ctx context.Context, t *target, s sample) (loop, error)
	// title names that loop.
	title() string
	// space names the part of the server that belongs to the run; empty if there is no
	// server.
	space() string
	// close removes everything that was made, unless it should be kept.
	close(keep bool) error
}

// loop does the work of a program without an engine.
type loop interface {
	execute(ctx context.Context, c *caller) error
	close() error
}

// The kinds of stores.
const (
	kindMemory   = "memory"
	kindPebble   = "pebble"
	kindPostgres = "postgres"
	kindRedis    = "redis"
	kindCluster  = "redis-cluster"
)

// kindOf is the kind of the measured store.
func (o *Options) kindOf() string {
	switch {
	case o.URL != "":
		return urlKind(o.URL)
	case o.Dir != "":
		return kindPebble
	}
	return kindMemory
}

// urlKind is the kind of store that a URL names, or "".
func urlKind(url string) string {
	scheme, _, _ := strings.Cut(url, "://")
	switch scheme {
	case "postgres", "postgresql":
		return kindPostgres
	case "redis", "rediss":
		return kindRedis
	case "redis-cluster", "rediss-cluster":
		return kindCluster
	}
	return ""
}

func isRedis(kind string) bool { return kind == kindRedis || kind == kindCluster }

// newPlace makes the place of a run.
func newPlace(o *Options) (place, error) {
	switch kind := o.kindOf(); {
	case kind == kindPebble:
		dir, err := openDir(o.Dir)
		if err != nil {
			return nil, err
		}
		return &pebblePlace{dir}, nil
	case kind == kindPostgres:
		return newPostgres(o.URL), nil
	case isRedis(kind):
		return newRedis(o.URL), nil
	}
	return memoryPlace{}, nil
}

// newSpace is a unique name.
func newSpace() string { return "semel_bench_" + strings.ToLower(rand.Text()[:10]) }

// removeTimeout bounds how long it may take to remove a run's data from a server.
const removeTimeout = 2 * time.Minute

// memoryPlace is the memory of this process.
type memoryPlace struct{}

func (memoryPlace) open(context.Context, string) (semel.Store, error) { return memstore.New(), nil }
func (memoryPlace) title() string                                     { return "" }
func (memoryPlace) space() string                                     { return "" }
func (memoryPlace) close(bool) error                                  { return nil }
func (memoryPlace) bare(context.Context, *target, sample) (loop, error) {
	return nil, errors.New("there is nothing bare to compare the memory store with")
}

// pebblePlace is a directory.
type pebblePlace struct{ dir *workDir }

func (p *pebblePlace) open(_ context.Context, name string) (semel.Store, error) {
	return pebblestore.Open(p.dir.sub(name), nil)
}

func (p *pebblePlace) bare(_ context.Context, t *target, s sample) (loop, error) {
	return openBarePebble(p.dir.sub("bare"), t, s)
}

func (p *pebblePlace) title() string         { return "bare Pebble" }
func (p *pebblePlace) space() string         { return "" }
func (p *pebblePlace) close(keep bool) error { return p.dir.close(keep) }
