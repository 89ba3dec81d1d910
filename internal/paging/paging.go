// Package paging limits how much one page of a list may cost the store, in bytes and in time. A
// page that ends early has a cursor, from which the next one continues.
package paging

import (
	"context"
	"time"
)

// Bounds of a page, about half of what an engine's store call may take, so that a page ends
// before the call does.
const (
	// Bytes are 64 records of the largest result that operations keep by default.
	Bytes = 16 << 20
	pace  = 2 * time.Second
)

type limitsKey struct{}

type limits struct {
	bytes int
	pace  time.Duration
}

// With sets other bounds for the pages that are read with a context.
func With(ctx context.Context, bytes int, pace time.Duration) context.Context {
	return context.WithValue(ctx, limitsKey{}, limits{bytes, pace})
}

// Budget is the time and the bytes that one page has left.
type Budget struct {
	Bytes int
	// Spent: the page ends here.
	Spent bool
	ends  time.Time
}

// New returns the budget of a page that begins now. It is at most half of ctx's remaining time.
func New(ctx context.Context) Budget {
	l, ok := ctx.Value(limitsKey{}).(limits)
	if !ok {
		l = limits{Bytes, pace}
	}
	now := time.Now()
	if at, ok := ctx.Deadline(); ok {
		l.pace = min(l.pace, at.Sub(now)/2)
	}
	return Budget{Bytes: max(l.bytes, 1), ends: now.Add(l.pace)}
}

// Spend counts the bytes of something that was looked at. It never ends a page that has looked
// at nothing, so every page makes progress.
func (b *Budget) Spend(bytes int) {
	b.Bytes -= bytes
	b.Spent = b.Bytes <= 0 || !time.Now().Before(b.ends)
}
