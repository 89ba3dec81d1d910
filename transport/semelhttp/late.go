package semelhttp

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
)

// A framework may keep the ResponseWriter of a guarded handler and write to it when the
// guard is done: its error handler, after the handler has returned an error, or its
// recoverer, after a panic. The two differ: after a return the answer is recorded and
// sent, after a panic the caller has nothing yet.

// errTooLate is why nobody got an answer.
var errTooLate = errors.New("a handler answered after it had returned, and nobody got that answer: put the guard outside of the framework's error handler")

// late tells somebody, once for each request, of an answer that comes after the handler
// has returned. It changes nothing: another answer is recorded already, and is what every
// caller gets.
func (c *capture) late(status int) {
	if c.told {
		return
	}
	c.told = true
	attrs := []slog.Attr{slog.String("operation", c.h.operation), slog.Int("status", status), slog.Int("recorded", c.status)}
	heard := c.h.guard.engine.Door().Troubled(semel.Event{
		Door: Door, ID: semel.ID{Operation: c.h.operation}, Status: status, Err: errTooLate,
		Attrs: door.Line(slog.LevelWarn, errTooLate.Error(), attrs...),
	})
	if !heard && c.h.warned.CompareAndSwap(false, true) {
		slog.Default().LogAttrs(context.Background(), slog.LevelWarn, "semel: "+errTooLate.Error(), attrs...)
	}
}

// errPanicked is why nothing more of an answer is sent.
var errPanicked = errors.New("semelhttp: the handler panicked while its answer was passing through")

// abandon is called while a panic of the handler goes on. Unless part of the answer has
// left, a recoverer further out may still answer, here or around the guard. Otherwise
// nothing may follow that part: net/http would end the answer as if it were whole once
// somebody has recovered.
func (c *capture) abandon() {
	c.panicked = true
	if c.through {
		c.failed = errPanicked
		_ = http.NewResponseController(c.w).SetWriteDeadline(time.Unix(1, 0)) // long ago
		return
	}
	c.outer.restore(c.w.Header()) // the rest belongs to an answer that nobody gets
	c.through, c.status, c.failed = true, 0, nil
}

// recovered sends the status of a recoverer, which is never that of a success: nobody
// knows what the handler has done.
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
