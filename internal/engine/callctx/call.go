// Package callctx has the contexts of calls to a store and of handlers. Most calls end before
// anybody waits for their context, so these cost little until then.
package callctx

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Call is the context of one call to a store, or of several that belong together: it has the
// values of the caller's context, not its cancellation, and a separate time limit. So a caller
// that hangs up doesn't make the result of a write unknown, and a store that hangs doesn't
// block the caller for ever.
//
// The limit begins when a store first asks for it: one that never waits doesn't pay for it.
// Most calls end before anybody waits for their end, so the timer starts with the first Done.
type Call struct {
	caller context.Context
	limit  time.Duration

	mu       sync.Mutex
	ended    bool
	deadline time.Time       // zero until somebody asks for it
	timed    context.Context // nil until somebody asks for Done or Value
	cancel   context.CancelFunc
}

// NewCall returns the context for calls to a store on behalf of a caller. End it afterwards.
func NewCall(caller context.Context, limit time.Duration) *Call {
	return &Call{caller: caller, limit: limit}
}

// End releases the context's resources. You may call it on nil.
func (c *Call) End() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	if c.cancel != nil {
		c.cancel()
	}
}

// withTimer returns the context that Done belongs to. [context.WithCancel] and [context.Cause]
// find it by Value.
func (c *Call) withTimer() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timed == nil {
		c.timed, c.cancel = context.WithDeadline(context.WithoutCancel(c.caller), c.until())
	}
	if c.ended {
		c.cancel()
	}
	return c.timed
}

// until returns the deadline. The caller holds c.mu.
func (c *Call) until() time.Time {
	if c.deadline.IsZero() {
		c.deadline = time.Now().Add(c.limit)
	}
	return c.deadline
}

// Deadline returns the deadline, and starts the limit.
func (c *Call) Deadline() (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.until(), true
}

// NeverCancelled says that the context ends at its deadline and not earlier, so a store that
// has one timer for many calls doesn't have to ask for Done.
func (c *Call) NeverCancelled() {}

// Done is closed at the end, or when the limit is over.
func (c *Call) Done() <-chan struct{} { return c.withTimer().Done() }

// Value returns the caller's value.
func (c *Call) Value(key any) any { return c.withTimer().Value(key) }

// Err says why the context has ended.
func (c *Call) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.timed != nil:
		return c.timed.Err()
	case c.ended:
		return context.Canceled
	case !c.deadline.IsZero() && !time.Now().Before(c.deadline):
		return context.DeadlineExceeded
	}
	return nil
}

// HungUp reports whether an error only says that the caller cancelled ctx. A store or an upstream
// may cancel something of its own, and its error tells of a failure then.
func HungUp(ctx context.Context, err error) bool {
	return errors.Is(err, context.Canceled) && errors.Is(ctx.Err(), context.Canceled)
}

// Pause waits for d, and reports false if ctx ends first.
func Pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
