package callctx

import (
	"context"
	"sync"
)

// Handler tells the handler of an attempt to stop. It creates the context on demand, because
// most attempts end without using it.
type Handler struct {
	mu      sync.Mutex
	stopped bool
	cause   error           // why, unless the attempt has ended
	ctx     context.Context // nil until asked for
	cancel  context.CancelCauseFunc
}

// Get returns the context, with the values of the parent of the first call.
func (h *Handler) Get(parent context.Context) context.Context {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ctx == nil {
		h.ctx, h.cancel = context.WithCancelCause(context.WithoutCancel(parent))
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
