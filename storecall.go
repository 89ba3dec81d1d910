package semel

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"
)

// storeCall is the context of one call to a store, or of several that belong together:
// it has the values of the caller's context, not its cancellation, and a separate time
// limit. So a caller that hangs up doesn't make the result of a write unknown, and a
// store that hangs doesn't block the caller for ever.
//
// The limit counts from when a store first asks for it: one that never waits pays for none.
// Most calls end before anybody waits for their end, so there is a timer only from the first
// Done on.
type storeCall struct {
	caller context.Context
	limit  time.Duration

	mu       sync.Mutex
	ended    bool
	deadline time.Time       // zero before anybody asked for it
	timed    context.Context // nil before anybody asked for Done or Value
	cancel   context.CancelFunc
}

// storeCall returns the context for calls to the store, and the storeCall to end afterwards.
// If ctx already is one, it returns ctx and nil, so that several calls share it.
func (e *Engine) storeCall(ctx context.Context) (context.Context, *storeCall) {
	if _, ok := ctx.(*storeCall); ok {
		return ctx, nil
	}
	c := &storeCall{caller: ctx, limit: e.opts.StoreTimeout}
	return c, c
}

// end releases the context's resources. You may call it on nil.
func (c *storeCall) end() {
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

// withTimer is the context that Done belongs to. [context.WithCancel] and
// [context.Cause] find it by Value.
func (c *storeCall) withTimer() context.Context {
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

// until is the deadline. The caller holds c.mu.
func (c *storeCall) until() time.Time {
	if c.deadline.IsZero() {
		c.deadline = time.Now().Add(c.limit)
	}
	return c.deadline
}

func (c *storeCall) Deadline() (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.until(), true
}

// NeverCancelled says that the context ends at its deadline and not before, so a store that
// has one timer for many calls need not ask for Done.
func (c *storeCall) NeverCancelled() {}

func (c *storeCall) Done() <-chan struct{} { return c.withTimer().Done() }

func (c *storeCall) Value(key any) any { return c.withTimer().Value(key) }

func (c *storeCall) Err() error {
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

// limited returns ctx with the time limit of a call to the store, for calls that may be
// cancelled with their caller.
func (e *Engine) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.(*storeCall); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, e.opts.StoreTimeout)
}

// guarded calls f, which runs the program's own functions, and turns their panic into an
// error. Unrecovered in a goroutine of ours, it would kill the process, and then every other
// process that picks up the same record. what names the function in the error.
func guarded(what string, f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%s panicked%s: %v", what, panicPlace(), v)
		}
	}()
	return f()
}

// panicPlace says where the code that is being recovered panicked; empty if that is not
// known. An error with the whole stack would fill logs, because it is repeated.
func panicPlace() string {
	pcs := make([]uintptr, 32)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	for panicking := false; ; {
		at, more := frames.Next()
		switch {
		case strings.HasPrefix(at.Function, "runtime."):
			panicking = panicking || at.Function == "runtime.gopanic"
		case panicking:
			return fmt.Sprintf(" at %s:%d", filepath.Base(at.File), at.Line)
		}
		if !more {
			return ""
		}
	}
}
