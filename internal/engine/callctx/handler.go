package callctx

import (
	"context"
	"sync"
	"time"
)

// Handler is the context of the handler of an attempt, which tells it to stop. It has the values
// of Parent, not its cancellation. Most attempts end before anybody waits for that, so the
// context that can be cancelled is made with the first Done.
type Handler struct {
	Parent context.Context

	mu      sync.Mutex
	stopped bool
	cause   error                   // why, unless the attempt has ended
	ctx     context.Context         // nil until somebody asks
	cancel  context.CancelCauseFunc // nil until somebody waits
}

// Deadline reports that there is none.
func (h *Handler) Deadline() (deadline time.Time, ok bool) { return }

// Done is closed once the handler must stop, or its attempt has ended.
func (h *Handler) Done() <-chan struct{} { return h.get(true).Done() }

// Err is [context.Canceled] then.
func (h *Handler) Err() error {
	if h.Stopped() {
		return context.Canceled
	}
	return nil
}

// Value returns the parent's value.
func (h *Handler) Value(key any) any { return h.get(false).Value(key) }

// get returns the context so far. For whoever waits it can be cancelled, and once it is, it has
// its cause: package context looks for both by Value.
func (h *Handler) get(waits bool) context.Context {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ctx == nil {
		h.ctx = context.WithoutCancel(h.Parent)
	}
	if h.cancel == nil && (waits || h.stopped) {
		h.ctx, h.cancel = context.WithCancelCause(h.ctx)
		if h.stopped {
			h.cancel(h.cause)
		}
	}
	return h.ctx
}

// Stop cancels the context. It reports false if it was stopped before.
func (h *Handler) Stop(cause error) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stopped {
		return false
	}
	h.stopped, h.cause = true, cause
	if h.cancel != nil {
		h.cancel(cause)
	}
	return true
}

// Stopped reports whether the attempt ended or its handler's context was cancelled.
func (h *Handler) Stopped() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stopped
}

// Lost returns why the handler's context was cancelled before its attempt ended, or nil.
func (h *Handler) Lost() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.cause
}
