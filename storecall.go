package semel

import (
	"context"
	"sync"
	"time"
)

// storeCall is the context of one call to a store: it has the values of the
// caller's context, not its cancellation, and a time limit of its own. A caller
// that hangs up must not leave a write in doubt, and a store that hangs must not
// take the caller with it.
//
// The limit counts from when the store first asks for it. A store that never
// asks, because nothing it does can hang, pays for no timer.
type storeCall struct {
	context.Context // the caller's, for its values
	limit           time.Duration

	mu     sync.Mutex
	timed  context.Context
	cancel context.CancelFunc
}

func (e *Engine) storeCall(ctx context.Context) *storeCall {
	return &storeCall{Context: ctx, limit: e.opts.StoreTimeout}
}

func (c *storeCall) get() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timed == nil {
		c.timed, c.cancel = context.WithTimeout(context.WithoutCancel(c.Context), c.limit)
	}
	return c.timed
}

func (c *storeCall) Deadline() (time.Time, bool) { return c.get().Deadline() }

func (c *storeCall) Done() <-chan struct{} { return c.get().Done() }

// Err does not start the limit: a call that was not waited for is in time.
func (c *storeCall) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timed == nil {
		return nil
	}
	return c.timed.Err()
}

// end frees the timer.
func (c *storeCall) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cancel != nil {
		c.cancel()
	}
}
