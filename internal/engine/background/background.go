// Package background runs work beside calls, and waits for it at the end.
package background

import (
	"context"
	"sync"
)

// Group is the work that somebody does beside calls, until they close it. The zero value has none.
// All methods may be called concurrently.
type Group struct {
	mu     sync.RWMutex
	closed bool
	work   sync.WaitGroup
}

// Go runs f in a goroutine of its own. It reports false, and runs nothing, once the group is closed.
func (g *Group) Go(f func()) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if g.closed {
		return false
	}
	g.work.Go(f)
	return true
}

// Close refuses further work, and waits until all that has begun is over, or ctx is done, whose
// error it returns then. Closing again waits again.
func (g *Group) Close(ctx context.Context) error {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	idle := make(chan struct{})
	go func() {
		g.work.Wait()
		close(idle)
	}()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
