package stage

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// Load makes calls, each until it is answered.
type Load struct {
	// Calls are the numbers of the calls, in the order in which they are begun; a number
	// may come several times. See [Shuffled].
	Calls []int
	// Senders is how many calls are under way at the same time.
	Senders int
	// Try makes one try, and reports whether the answer was final; if not, the load tries
	// again. Many goroutines call it. An error ends the load.
	Try func(ctx context.Context, call int) (answered bool, err error)
	// Pause is between two tries, give or take a half.
	Pause time.Duration
	// HangUp, if it isn't 0, is how long the first try of one sender in ten waits for its
	// answer at most.
	HangUp time.Duration
	// Disturb is called so many Times at even distances, while the calls go on.
	Disturb func(ctx context.Context) error
	Times   int
}

// Shuffled are events, each so many times, in random order.
func Shuffled(events, copies int) []int {
	calls := rand.Perm(events * copies)
	for i := range calls {
		calls[i] %= events
	}
	return calls
}

// Run returns when all calls were answered.
func (l *Load) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	work, done := make(chan int), make(chan struct{}, len(l.Calls))
	var senders sync.WaitGroup
	for range l.Senders {
		senders.Go(func() {
			for call := range work {
				if err := l.insist(ctx, call); err != nil {
					cancel(err)
				}
				done <- struct{}{}
			}
		})
	}
	go func() {
		defer close(work)
		for _, call := range l.Calls {
			select {
			case work <- call:
			case <-ctx.Done():
				return
			}
		}
	}()
	every := max(len(l.Calls)/(l.Times+1), 1)
	for n, times := 1, 0; n <= len(l.Calls) && ctx.Err() == nil; n++ {
		select {
		case <-done:
		case <-ctx.Done():
		}
		if n%every == 0 && times < l.Times && ctx.Err() == nil {
			times++
			if err := l.Disturb(ctx); err != nil {
				cancel(err)
			}
		}
	}
	senders.Wait()
	return context.Cause(ctx)
}

// insist makes a call until it is answered.
func (l *Load) insist(ctx context.Context, call int) error {
	hangUp := l.HangUp > 0 && rand.IntN(10) == 0
	for ctx.Err() == nil {
		try, cancel := ctx, context.CancelFunc(func() {})
		if hangUp {
			try, cancel = context.WithTimeout(ctx, rand.N(l.HangUp))
		}
		answered, err := l.Try(try, call)
		cancel()
		if err != nil || answered {
			return err
		}
		hangUp = false
		Pause(ctx, l.Pause/2+rand.N(l.Pause+1))
	}
	return nil // Run knows why
}

// Pause waits for d, or until ctx is done.
func Pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// Until looks again and again until it is true, or ctx is done.
func Until(ctx context.Context, is func() bool) error {
	for !is() {
		if Pause(ctx, 5*time.Millisecond); ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}
