package benchstore

import (
	"context"
	"errors"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// groundName is the name of the store of a [Ground] in its place.
const groundName = "ground"

// Ground is a store on which another benchmark than this package's measures.
type Ground struct {
	Store semel.Store
	// Kind is "memory", "pebble", "postgres", "redis" or "redis-cluster".
	Kind string
	// Durability is what the store promises by its settings, if it can tell.
	Durability *store.Durability
	opts       Options
	place      place
}

// OpenGround makes an empty store. It uses only Dir, URL, Keep and Progress of the
// options.
func OpenGround(ctx context.Context, opts Options) (g *Ground, err error) {
	g = &Ground{Kind: opts.kindOf(), opts: opts}
	if g.place, err = newPlace(&opts); err != nil {
		return nil, err
	}
	if g.Store, err = g.place.open(ctx, groundName); err != nil {
		return nil, errors.Join(err, g.place.close(false))
	}
	if g.Durability, err = durability(ctx, g.Store); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return g, nil
}

// Fill writes n records and returns how long that took. Then it waits until the store has
// put them in order. It calls record from many goroutines.
func (g *Ground) Fill(ctx context.Context, n int, record func(ctx context.Context, i int) (semel.Record, error)) (time.Duration, error) {
	took, err := g.opts.fill(ctx, g.Store, n, record)
	if err != nil {
		return took, err
	}
	return took, g.opts.settle(ctx, g.place, groundName)
}

// Close closes the store and removes it, unless it should be kept.
func (g *Ground) Close() error { return errors.Join(g.Store.Close(), g.place.close(g.opts.Keep)) }
