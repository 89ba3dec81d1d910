package semelhttp

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/semelhq/semel"
)

// A framework may keep the ResponseWriter of a guarded handler and write to it after the guard
// is done: its error handler does, after the handler has returned an error, or its recoverer,
// after a panic. The two differ: after a return the answer is recorded and sent, after a panic
// the caller has nothing yet.

// Why nobody got the handler's answer.
var (
	errTooLate  = errors.New("a handler answered after it had returned, and nobody got that answer: put the guard outside of the framework's error handler")
	errTimedOut = errors.New("a handler answered after a timeout inside of the guard had answered for it, and nobody got its answer: put the guard inside of the timeout, or set Route.Timeout instead")
)

// ErrNoAnswer is the Err of an event for Troubled of [semel.Events], once for each route: a
// handler returned without touching its ResponseWriter, and the guard recorded an empty 200. In
// a framework its answer went elsewhere. If you mean an empty 200, let the handler call
// WriteHeader.
var ErrNoAnswer = errors.New("a handler returned without an answer, and an empty 200 is recorded: if it answers by another ResponseWriter than the guard's, duplicates don't get that answer; if it means 200, let it call WriteHeader")

// late reports, once for each request, an answer that comes after the handler has returned. It
// changes nothing: another answer is already recorded, and is the one that every caller gets.
func (c *capture) late(status int) {
	if c.told {
		return
	}
	c.told = true
	why := errTooLate
	switch c.status {
	case http.StatusRequestTimeout, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		why = errTimedOut
	}
	c.h.tell(why, c.h.warned, status, slog.Int("status", status), slog.Int("recorded", c.status))
}

// tell reports a handler that answers wrongly. If nobody observes that, it writes to the
// default log, and only once if once is set.
func (h *handler) tell(err error, once *atomic.Bool, status int, attrs ...slog.Attr) {
	attrs = append([]slog.Attr{slog.String("operation", h.operation)}, attrs...)
	heard := h.guard.engine.Internal().Troubled(semel.Troubled{
		Door: Name, ID: semel.ID{Operation: h.operation}, Status: status, Err: err,
		Line: semel.Line{Level: slog.LevelWarn, Note: err.Error(), Attrs: attrs},
	})
	if !heard && (once == nil || once.CompareAndSwap(false, true)) {
		slog.Default().LogAttrs(context.Background(), slog.LevelWarn, "semel: "+err.Error(), attrs...)
	}
}

// silence answers for a handler that has returned without an answer, like net/http.
func (c *capture) silence() {
	if !c.touched && c.h.silent.CompareAndSwap(false, true) {
		c.h.tell(ErrNoAnswer, nil, 0)
	}
	c.WriteHeader(http.StatusOK)
}

// notePanic notes that a failure's status comes from a recoverer inside the guard, unless the
// answer says more about the work.
func (c *capture) notePanic() {
	if !c.found.Declared() && recovering() {
		c.scope.panic()
	}
}

// recovering reports whether the stack has a function that was deferred before a panic, and
// after the guard had called the handler: a recoverer inside the guard is answering. It misses
// one that answers after that function has returned.
func recovering() bool {
	var stack [64]uintptr // recoverers answer close to the panic
	frames := runtime.CallersFrames(stack[:runtime.Callers(2, stack[:])])
	for {
		frame, more := frames.Next()
		switch {
		case frame.Function == "runtime.gopanic":
			return true
		case !more || strings.HasSuffix(frame.Function, "semelhttp.(*exchange).Run"):
			return false
		}
	}
}

// errPanicked is why the rest of an answer isn't sent.
var errPanicked = errors.New("semelhttp: the handler panicked while its answer was passing through")

// abandon is called while a panic of the handler goes on. Unless part of the answer has left, a
// recoverer further out may still answer, here or around the guard. If part of it has, nothing
// may follow: net/http would end the answer as if it were whole after somebody has recovered.
func (c *capture) abandon() {
	c.panicked = true
	if c.through {
		c.failed = errPanicked
		_ = http.NewResponseController(c.w).SetWriteDeadline(time.Unix(1, 0)) // long ago
		return
	}
	c.outer.Restore(c.w.Header()) // the rest belongs to an answer that nobody gets
	c.through, c.status, c.failed = true, 0, nil
}

// recovered sends a recoverer's status, but never a success: nobody knows what the handler has
// done.
func (c *capture) recovered(status int) {
	if c.failed != nil || c.status != 0 {
		return
	}
	if status < http.StatusBadRequest {
		status = http.StatusInternalServerError
	}
	c.status = status
	c.w.WriteHeader(status)
}
