package semel

import (
	"context"
	"slices"
	"sync"
	"time"
)

// storeCall is the context of one call to a store: it has the values of the
// caller's context, not its cancellation, and a time limit of its own. A caller
// that hangs up must not leave a write in doubt, and a store that hangs must not
// take the caller with it.
//
// The limit counts from when the store first asks for it. A store that never
// asks, because nothing it does can hang, pays for no limit. The ready-made
// contexts of the standard library would cost more than some stores do.
type storeCall struct {
	context.Context // the caller's, for its values
	limits          *storeLimits

	mu     sync.Mutex
	counts bool          // the limit does
	done   chan struct{} // nil until somebody asks for it
	after  []*func()     // what others want called at the end
	err    error

	// Of limits, which guards them but for deadline, which no longer changes.
	deadline   time.Time
	next, prev *storeCall
}

// storeCall is the context of a call to the store: ctx itself where the caller has
// made it one, for several calls that belong together, or one of its own, which
// the caller then ends.
func (e *Engine) storeCall(ctx context.Context) (call *storeCall, own bool) {
	if call, ok := ctx.(*storeCall); ok {
		return call, false
	}
	return &storeCall{Context: ctx, limits: &e.limits}, true
}

// start lets the limit count. The caller holds c.mu.
func (c *storeCall) start() {
	if !c.counts && c.err == nil { // or it was asked after the call was over
		c.counts = true
		c.limits.add(c)
	}
}

// Deadline is the end of the limit.
func (c *storeCall) Deadline() (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.start()
	return c.deadline, true
}

// Done is closed at the end of the limit.
func (c *storeCall) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.start()
	if c.done == nil {
		c.done = make(chan struct{})
		if c.err != nil {
			close(c.done)
		}
	}
	return c.done
}

// Err does not let the limit count: a call that was not waited for is in time.
func (c *storeCall) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// end is for when the call is over.
func (c *storeCall) end() { c.stop(context.Canceled) }

func (c *storeCall) stop(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.err = err
	if c.counts {
		c.limits.remove(c)
	}
	if c.done != nil {
		close(c.done)
	}
	for _, f := range c.after {
		go (*f)()
	}
	c.after = nil
}

// AfterFunc is what [context.AfterFunc] and contexts made of this one ask for: with it
// none of them needs a goroutine that waits for the end.
func (c *storeCall) AfterFunc(f func()) (stop func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.start()
	if c.err != nil {
		go f()
		return func() bool { return false }
	}
	c.after = append(c.after, &f)
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		i := slices.Index(c.after, &f)
		if i >= 0 {
			c.after = slices.Delete(c.after, i, i+1)
		}
		return i >= 0
	}
}
