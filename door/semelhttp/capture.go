package semelhttp

import (
	"bytes"
	"cmp"
	"io"
	"net/http"
	"strconv"
	"sync"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/judge"
	"github.com/semelhq/semel/internal/answer"
	"github.com/semelhq/semel/internal/payload"
	"github.com/semelhq/semel/internal/relay"
	"github.com/semelhq/semel/store"
)

// scratch is memory that later requests reuse.
type scratch struct {
	payload  payload.Payload
	exchange exchange
	answer   []byte // in the form that is recorded
	outer    answer.Headers
	frozen   answer.Headers
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// release returns the memory, except what only unusually large requests need.
func (s *scratch) release() {
	s.payload.Release()
	s.exchange = exchange{}
	s.answer = payload.Reuse(s.answer)
	clear(s.outer) // so that the values can be collected
	clear(s.frozen)
	s.outer, s.frozen = s.outer[:0], s.frozen[:0]
	scratches.Put(s)
}

// capture is the ResponseWriter of a guarded handler. It holds the answer back until that is
// recorded. An answer that can't be kept passes through; see stream.go.
type capture struct {
	w      http.ResponseWriter
	h      *handler
	scope  scope
	body   payload.Spool // of the request
	method string
	origin string   // of the page that sent the request; empty if none did
	sc     *scratch // lends the memory for the fields below

	outer  answer.Headers // headers set around the guard, before the handler ran
	frozen answer.Headers // headers when the status was set
	status int            // zero until it is set
	found  judge.Finding  // judged by status and headers, and finally by body and trailers
	bodyAt int            // offset of the body in out
	out    []byte         // head and body in recorded form
	failed error          // why nothing more is accepted

	through   bool         // the answer is passing through
	recording *relay.First // of a stream that passes through; nil if it isn't recorded
	announced bool         // the ledger says that the answer may be passed through
	closed    bool         // the handler has returned
	touched   bool         // the handler has looked at the header

	signedAnew bool // see judge.Answer
	panicked   bool // it panicked, and a recoverer is answering; see late.go
	told       bool // an answer that came too late was reported
}

// Header is the handler's header. Until the status is set, headers set here go into the answer;
// after that only trailers do.
func (c *capture) Header() http.Header {
	c.touched = true
	return c.w.Header()
}

// WriteHeader sets the status. Informational statuses go to the first caller at once and aren't
// recorded.
func (c *capture) WriteHeader(status int) {
	switch {
	case c.panicked:
		c.recovered(status)
		return
	case c.closed:
		if status != c.status { // otherwise it changes nothing anyway
			c.late(status)
		}
		return
	case c.status != 0: // no effect, as with net/http
		if status >= http.StatusInternalServerError {
			c.notePanic()
		}
		return
	}
	if status < 100 || status > 999 {
		// net/http panics too, but only sees the status once the answer is recorded.
		panic("semelhttp: invalid WriteHeader code " + strconv.Itoa(status))
	}
	if status >= 100 && status < 200 && status != http.StatusSwitchingProtocols {
		delete(c.w.Header(), judge.EffectHeader) // it proves nothing about the outcome
		if !c.whole() {
			c.w.WriteHeader(status)
		}
		return
	}
	c.status = status
	c.found = c.judge(nil)
	if status >= http.StatusInternalServerError {
		c.notePanic()
	}
	delete(c.w.Header(), judge.EffectHeader)
	c.frozen = c.sc.frozen[:0].Add(c.w.Header())
	c.out = answer.AppendHead(c.out, status, c.frozen, c.outer, c.origin, c.h.route.KeepHeaders)
	c.bodyAt = len(c.out)
	if status == http.StatusSwitchingProtocols {
		c.failed = c.pass()
	}
}

// judge finds out what the answer proves, by its body, too, unless body is nil.
func (c *capture) judge(body []byte) judge.Finding {
	return c.h.rules.Of(judge.Answer{Status: c.status, Header: c.w.Header(), Body: body, SignedAnew: c.signedAnew})
}

// judgeWhole judges the answer again once it has ended, if its head left something open. The
// effect header counts only in the head, not in trailers: the answer may have left by then.
func (c *capture) judgeWhole() {
	switch {
	case c.found.Declared():
	case c.found.Code != "" || !c.through && c.failed == nil && c.h.rules.Reads(c.status):
		delete(c.w.Header(), judge.EffectHeader)
		c.found = c.judge(c.out[c.bodyAt:])
	}
}

// Write adds to the body.
func (c *capture) Write(p []byte) (int, error) { return write(c, p, c.w.Write) }

// WriteString is Write without a copy.
func (c *capture) WriteString(s string) (int, error) {
	return write(c, s, func(s string) (int, error) { return io.WriteString(c.w, s) })
}

func write[T string | []byte](c *capture, p T, through func(T) (int, error)) (int, error) {
	if err := c.ready(); err != nil {
		return 0, err
	}
	if !c.through && len(c.out)+len(p) <= c.h.maxResult {
		c.out = append(c.out, p...)
		return len(p), nil
	}
	if err := c.pass(); err != nil {
		return 0, err
	}
	if relay.Add(c.recording, p) {
		return len(p), nil
	}
	defer c.startDeadline()()
	return through(p)
}

// ReadFrom adds src to the body.
func (c *capture) ReadFrom(src io.Reader) (n int64, err error) {
	if err := c.ready(); err != nil {
		return 0, err
	}
	for !c.through {
		if len(c.out) == cap(c.out) {
			c.out = append(c.out, 0)[:len(c.out)]
		}
		got, err := src.Read(c.out[len(c.out):cap(c.out)])
		c.out = c.out[:len(c.out)+got]
		n += int64(got)
		if len(c.out) > c.h.maxResult {
			if err := c.pass(); err != nil {
				return n, err
			}
		}
		if err == io.EOF {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
	m, err := io.Copy(writeOnly{c}, src)
	return n + m, err
}

// writeOnly hides ReadFrom.
type writeOnly struct{ io.Writer }

// whole reports whether nothing leaves before the end.
func (c *capture) whole() bool { return c.scope.Run.Tx != nil }

// ready sets the status if it isn't set yet, and returns why nothing can be written.
func (c *capture) ready() error {
	if c.panicked {
		c.recovered(http.StatusInternalServerError)
		return c.failed
	}
	if c.closed {
		c.late(cmp.Or(c.status, http.StatusOK))
		return http.ErrHandlerTimeout
	}
	if c.status == 0 {
		c.WriteHeader(http.StatusOK)
	}
	if c.failed != nil {
		return c.failed
	}
	if !bodyAllowed(c.status) {
		return http.ErrBodyNotAllowed
	}
	return nil
}

// bodyAllowed is RFC 9110's rule; after 101, another protocol follows.
func bodyAllowed(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}

// Unwrap lets [http.ResponseController] find what this writer doesn't do itself, such as
// deadlines.
func (c *capture) Unwrap() http.ResponseWriter { return c.w }

// result returns a copy of the answer in recorded form.
func (c *capture) result() semel.Result {
	if !c.through && c.failed == nil && !c.h.route.KeepNothing {
		return semel.Result{Data: bytes.Clone(c.out)}
	}
	if mark := c.recording.Mark(); mark != nil && c.failed == nil {
		return semel.Result{Data: answer.Streamed(c.out[:c.bodyAt], mark)}
	}
	return semel.Result{Data: answer.AppendHead(nil, c.status, nil, nil, "", nil), Tombstone: true} // the status, and that the rest wasn't kept
}

// learned returns the attributes that the answer has.
func (c *capture) learned() store.Attributes {
	if c.through || c.failed != nil {
		return nil
	}
	types := c.frozen.Get("Content-Type")
	if len(types) != 1 || len(c.frozen.Beyond(c.outer, "Content-Encoding")) > 0 || !payload.IsJSON(types[0]) {
		return nil
	}
	return c.h.extract.FromAnswer(c.out[c.bodyAt:])
}
