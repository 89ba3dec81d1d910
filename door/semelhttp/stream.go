package semelhttp

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/origin"
	"github.com/semelhq/semel/internal/relay"
)

// answerEffect is the ledger's name for an answer that passes through. It is an effect: once
// its first byte may have left, another attempt would give the caller a second answer to one
// call.
const answerEffect = "semelhttp.answer"

// errPassing leaves that effect started in the ledger. Ending it would take another
// write, and a crash between that write and the end of the attempt would let the call run
// again.
var errPassing = errors.New("the answer is being passed through")

// announce makes it durable that the answer is about to pass through. A crash before that
// leaves an attempt, and the caller got nothing: the policy decides. A crash after it leaves a
// started effect, so the record is held, and an operator or a reconciler settles it. The end of
// the attempt supersedes it. Where the policy holds the call anyway, a recorded stream doesn't wait
// for this, but its end waits for that of the attempt. An effect that is open now proves nothing: it
// may have ended before the stream does.
func (c *capture) announce() error {
	a := c.scope.Attempt
	if c.announced = c.announced || c.records() && a.Context().Err() == nil && !a.Record().Policy.MayRunAgain(); c.announced {
		return nil
	}
	_, err := semel.Effect(a.Context(), a, answerEffect, func(context.Context, string) (struct{}, error) {
		return struct{}{}, errPassing
	})
	if errors.Is(err, semel.ErrLeaseLost) && c.endEarly() == nil {
		err = errPassing
	}
	if c.announced = errors.Is(err, errPassing); !c.announced {
		c.failed = errors.Join(errNotPassed, err) // not a byte may leave
	}
	return c.failed
}

// endEarly ends the attempt before its answer has passed through, after somebody has declared
// the record held: it takes no more effects, but its holder may still end it. Once that is
// durable no further attempt can give a second answer.
func (c *capture) endEarly() error {
	through := c.through
	c.through = true // the attempt ends like one whose answer isn't kept
	end := c.ending()
	c.through = through
	return c.scope.Attempt.End(c.scope.Attempt.Context(), end)
}

// pass starts passing the answer through, and sends the part captured so far. If the record
// wouldn't keep the answer anyway, nothing needs to be written first.
func (c *capture) pass() error {
	if c.through {
		return nil
	}
	if c.whole() {
		c.failed = errWhole
	}
	if c.failed != nil {
		return c.failed
	}
	if c.h.keeps(c.found.Verdict) || c.found.Code != "" && c.w.Header()["Grpc-Status"] == nil {
		if err := c.announce(); err != nil {
			return err
		}
	}
	c.through = true
	if header := c.w.Header(); !c.frozen.Equal(header) {
		c.frozen.Restore(header)
	}
	origin.Own(c.w).WriteHeader(c.status)
	body := c.out[c.bodyAt:]
	if c.out = c.out[:c.bodyAt]; c.record(body) || len(body) == 0 {
		return nil
	}
	defer c.startDeadline()()
	_, err := c.w.Write(body)
	return err
}

// startDeadline bounds a write to the caller by half of the route's remaining time. So a caller
// who doesn't read can't keep the attempt running, and the other half remains for finding out
// how the work ends. A stream that outlasts the route's time has a quarter of that time for
// each write. After a write has timed out, all later ones fail.
func (c *capture) startDeadline() (done func()) {
	left := max(time.Until(c.scope.Run.Deadline), c.h.route.Timeout/2)
	return relay.Limit(c.w, left/2)
}

var errNotPassed = errors.New("semelhttp: the answer can't be passed through, because that can't be recorded")

// Flush is FlushError without the error.
func (c *capture) Flush() { _ = c.FlushError() }

// FlushError sends what is there, so the answer passes through from now on, unless the route
// ignores flushes. [http.ResponseController] calls it.
func (c *capture) FlushError() error {
	if c.closed {
		return http.ErrHandlerTimeout
	}
	if (c.h.route.IgnoreFlush || c.whole()) && !c.through {
		return nil
	}
	if !canFlush(c.w) {
		return http.ErrNotSupported
	}
	if c.status == 0 {
		c.WriteHeader(http.StatusOK)
	}
	if err := c.pass(); err != nil {
		return err
	}
	if c.recording.On() { // what was recorded is flushed anyway
		return nil
	}
	defer c.startDeadline()()
	return http.NewResponseController(c.w).Flush()
}

// Hijack hands the connection to the handler. The call is then recorded without its answer.
func (c *capture) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if c.closed {
		return nil, nil, http.ErrHandlerTimeout
	}
	if c.whole() || c.recording.On() || !can[http.Hijacker](c.w) {
		return nil, nil, http.ErrNotSupported
	}
	if c.failed != nil {
		return nil, nil, c.failed
	}
	if err := c.announce(); err != nil {
		return nil, nil, err
	}
	conn, rw, err := http.NewResponseController(c.w).Hijack()
	if err == nil {
		if c.status == 0 {
			c.status = http.StatusSwitchingProtocols
			c.found = c.judge(nil)
		}
		c.through = true
		c.failed = http.ErrHijacked
	}
	return conn, rw, err
}

func canFlush(w http.ResponseWriter) bool {
	return can[http.Flusher](w) || can[interface{ FlushError() error }](w)
}

// can reports whether w, or a writer that it wraps, implements T.
func can[T any](w http.ResponseWriter) bool {
	for w != nil {
		if _, ok := w.(T); ok {
			return true
		}
		u, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return false
		}
		w = u.Unwrap()
	}
	return false
}
