package dispatch

import (
	"context"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// bounded is a store with a time limit on calls. Deliveries need one because they continue
// after the dispatcher's context ends, so no caller's context ends their calls.
type bounded struct {
	semel.Store
	due   store.DueIndex
	limit time.Duration
}

func (b bounded) Apply(ctx context.Context, w store.Write) (*semel.Record, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, b.limit)
	defer cancel()
	return b.Store.Apply(ctx, w)
}

func (b bounded) Get(ctx context.Context, id semel.ID) (*semel.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, b.limit)
	defer cancel()
	return b.Store.Get(ctx, id)
}

func (b bounded) Now(ctx context.Context) (store.Instant, error) {
	ctx, cancel := context.WithTimeout(ctx, b.limit)
	defer cancel()
	return b.Store.Now(ctx)
}

func (b bounded) Due(ctx context.Context, q store.DueQuery) (store.DuePage, error) {
	ctx, cancel := context.WithTimeout(ctx, b.limit)
	defer cancel()
	return b.due.Due(ctx, q)
}

// Purge deletes the records, if the store can.
func (b bounded) Purge(ctx context.Context, refs []store.Ref) (int, error) {
	p := b.Store.Extras().Purge
	if p == nil {
		return 0, nil
	}
	ctx, cancel := context.WithTimeout(ctx, b.limit)
	defer cancel()
	return p.Purge(ctx, refs)
}
