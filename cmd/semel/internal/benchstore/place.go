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
	// open makes a store, which is empty unless another process of the same run
	// has opened it under this name.
	open(ctx context.Context, name string) (semel.Store, error)
	// bare makes what the engine is compared with.
	bare(ctx context.Context, t *target, s sample) (loop, error)
	// title names what bare makes.
	title() string
	// space names what the run keeps apart from all else there; empty where other
	// processes can't open it.
	space() string
	// close removes all that was made, unless it is to be kept.
	close(keep bool) error
}

// loop does what a program without an engine does.
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

// kindOf is the kind of the store that is measured.
func (o *Options) kindOf() string {
	switch {
	case o.URL != "":
		return urlKind(o.URL)
	case o.Dir != "":
		return kindPebble
	}
	return kindMemory
}

// urlKind is the kind of store that a URL leads to, or "".
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

// newPlace makes the place of a run. Space is empty, or that of the process which
// this one helps.
func newPlace(o *Options, space string) (place, error) {
	switch kind := o.kindOf(); {
	case kind == kindPebble:
		dir, err := openDir(o.Dir)
		if err != nil {
			return nil, err
		}
		return &pebblePlace{dir}, nil
	case kind == kindPostgres:
		return newPostgres(o.URL, space), nil
	case isRedis(kind):
		return newRedis(o.URL, space), nil
	}
	return memoryPlace{}, nil
}

// newSpace is a name that no other run has.
func newSpace() string { return "semel_bench_" + strings.ToLower(rand.Text()[:10]) }

// removeTimeout bounds how long the data of a run may take to be removed from a
// server.
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
