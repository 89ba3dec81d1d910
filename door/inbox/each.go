package inbox

import (
	"cmp"
	"context"
	"time"
)

// atOnce is how many parts of a delivery are accepted concurrently. Stores commit concurrent
// writes together (group commit).
const atOnce = 16

// Within bounds a sender's wait by a budget. If the sender hangs up, its delivery is accepted
// anyway.
func Within(ctx context.Context, budget time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), budget)
}

// Until calls f and returns its error. If ctx is done first, Until returns and f continues, and
// another delivery finds its outcome.
func Until(ctx context.Context, f func(ctx context.Context) error) error {
	result := make(chan error, 1)
	go func() { result <- f(ctx) }()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Each calls accept for each part of a delivery, a few concurrently, and returns the first
// error. If ctx is done before all have returned, running calls continue, and another delivery
// finds their outcome.
func Each[T any](ctx context.Context, parts []T, accept func(ctx context.Context, part *T) error) error {
	results := make(chan error, len(parts))
	slots := make(chan struct{}, atOnce)
	go func() {
		for i := range parts {
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				return
			}
			go func() {
				defer func() { <-slots }()
				results <- accept(ctx, &parts[i])
			}()
		}
	}()
	var first error
	for range parts {
		select {
		case err := <-results:
			first = cmp.Or(first, err)
		case <-ctx.Done():
			return cmp.Or(first, ctx.Err())
		}
	}
	return first
}
