// Package paging bounds what one page of a list may cost a store that reads it: in bytes, and
// in time. A page that ends early has a cursor, from which the next one goes on.
package paging

import (
	"context"
	"time"
)

// Bounds of a page, and about half of what a store call of an engine may take, so that a
// page ends before the call does.
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

// With gives the pages that are read with a context other bounds.
func With(ctx context.Context, bytes int, pace time.Duration) context.Context {
	return context.WithValue(ctx, limitsKey{}, limits{bytes, pace})
}

// Budget is the time and the bytes that one page still has.
type Budget struct {
	Bytes int
	// Spent: the page ends here.
	Spent bool
	ends  time.Time
}

// New is the budget of a page that begins now. It is at most half of the time that ctx leaves.
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

// Spend counts the bytes of something that was looked at. It never ends a page that has looked at
// nothing, so every page gets further.
func (b *Budget) Spend(bytes int) {
	b.Bytes -= bytes
	b.Spent = b.Bytes <= 0 || !time.Now().Before(b.ends)
}
