package dispatch

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/semelhq/semel"
)

// bucket spaces the tries at one receiver. The zero Rate lets everything through.
type bucket struct {
	rate semel.Rate
	mu   sync.Mutex
	full time.Time // when all tokens are back
}

// wait takes a token, when there is one. An error is that of ctx.
func (b *bucket) wait(ctx context.Context) error {
	if b.rate.Burst == 0 {
		return ctx.Err()
	}
	perToken := span(1 / b.rate.PerSecond)
	b.mu.Lock()
	now := time.Now()
	if b.full.Before(now) {
		b.full = now
	}
	b.full = b.full.Add(perToken)
	delay := b.full.Sub(now) - span(float64(b.rate.Burst)/b.rate.PerSecond)
	b.mu.Unlock()
	if delay <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err() // the token is lost, which only slows down
	}
}

// span is so many seconds, as far as a duration can have them.
func span(seconds float64) time.Duration {
	return time.Duration(min(seconds*float64(time.Second), math.MaxInt64/2))
}
