package dispatch

import (
	"context"
	"time"

	"github.com/semelhq/semel"
)

// bounded is a store that is not waited for without end: a delivery goes on although
// the dispatcher was told to stop, so no caller's context ends its calls.
type bounded struct {
	semel.Store
	due   semel.DueStore
	limit time.Duration
}

func (b bounded) Apply(ctx context.Context, w semel.Write) (semel.Record, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, b.limit)
	defer cancel()
	return b.Store.Apply(ctx, w)
}

func (b bounded) Get(ctx context.Context, id semel.ID) (semel.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, b.limit)
	defer cancel()
	return b.Store.Get(ctx, id)
}

func (b bounded) Now(ctx context.Context) (semel.Instant, error) {
	ctx, cancel := context.WithTimeout(ctx, b.limit)
	defer cancel()
	return b.Store.Now(ctx)
}

func (b bounded) Due(ctx context.Context, q semel.DueQuery) (semel.DuePage, error) {
	ctx, cancel := context.WithTimeout(ctx, b.limit)
	defer cancel()
	return b.due.Due(ctx, q)
}

// Purge deletes what the store can delete.
func (b bounded) Purge(ctx context.Context, refs []semel.Ref) (int, error) {
	p, ok := b.Store.(semel.PurgeStore)
	if !ok {
		return 0, nil
	}
	ctx, cancel := context.WithTimeout(ctx, b.limit)
	defer cancel()
	return p.Purge(ctx, refs)
}
