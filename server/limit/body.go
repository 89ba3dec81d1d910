package limit

import (
	"cmp"
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"
)

// Options configures [Budget.Handler] and [Requests]. Nil means the defaults.
type Options struct {
	// Caller tells whose budget a request uses. Defaults to one caller for all.
	Caller func(*http.Request) Caller
	// Pace is how fast a body has to come. Defaults to any pace.
	Pace Pace
	// BodyTimeout is how long a whole body may take. Defaults to any time.
	BodyTimeout time.Duration
	// TypeBase precedes the code in the type of a problem. Defaults to
	// "urn:semel:problem:".
	TypeBase string
	// RetryAfter is what a refused caller is told to wait, in whole seconds.
	// Defaults to 1 s.
	RetryAfter time.Duration
}

func (o *Options) withDefaults() Options {
	var opts Options
	if o != nil {
		opts = *o
	}
	opts.TypeBase = cmp.Or(opts.TypeBase, "urn:semel:problem:")
	opts.RetryAfter = cmp.Or(opts.RetryAfter, time.Second)
	return opts
}

// reserved is what a body takes before anything of it has come: whoever finds the
// budget used up is told so before the body is sent. It is what a connection reads
// ahead anyway. What a Content-Length announces takes nothing, since announcing
// costs the caller nothing.
const reserved = 4 << 10

// Handler takes the bytes of a request's body as they are read, until next returns.
// A request that does not fit is refused with a problem and a Retry-After: 503 where
// the server's budget is used up, 429 where it is that of the tenant or the caller.
// One that would never fit is refused with 413, and one whose body comes too slowly
// with 408.
//
// A body that stops fitting while it is read gives next an [*ExhaustedError]. What
// next answers is then replaced by the refusal, if it has not begun to answer before.
func (b *Budget) Handler(next http.Handler, opts *Options) http.Handler {
	return &middleware{budget: b, next: next, opts: opts.withDefaults()}
}

type middleware struct {
	budget *Budget
	next   http.Handler
	opts   Options
}

func (m *middleware) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 {
		m.next.ServeHTTP(w, r)
		return
	}
	h := &hold{budget: m.budget}
	if m.opts.Caller != nil {
		h.caller = m.opts.Caller(r)
	}
	defer h.release()
	ahead := int64(reserved)
	if r.ContentLength > 0 {
		ahead = min(ahead, r.ContentLength)
	}
	err := m.budget.fits(r.ContentLength)
	if err == nil && r.ContentLength > 0 {
		err = h.grow(ahead)
	} else {
		ahead = 0 // a body of unknown length may be a short one
	}
	if err != nil {
		m.opts.refuse(w, r, err)
		return
	}
	body := &countedBody{ReadCloser: r.Body, hold: h, ahead: ahead, pace: m.opts.Pace, rc: http.NewResponseController(w)}
	if m.opts.BodyTimeout > 0 {
		body.end = time.Now().Add(m.opts.BodyTimeout)
	}
	counted := *r
	counted.Body = body
	aw := &answer{ResponseWriter: w, opts: &m.opts, r: r, body: body}
	if len(w.Header()) > 0 {
		aw.before = w.Header().Clone()
	}
	m.next.ServeHTTP(aw, &counted)
	aw.start() // next may have returned without a word
}

// errTooSlow is why a body was not read to its end.
var errTooSlow = errors.New("limit: the body comes too slowly")

// countedBody takes what is read. It is read by one goroutine at a time, as any
// body is, but perhaps by another than the one that answers.
type countedBody struct {
	io.ReadCloser
	hold  *hold
	ahead int64 // taken, and not read yet
	rc    *http.ResponseController

	pace   Pace
	read   int64
	waited time.Duration // for what was read; a handler that reads late is not the caller's fault

	mu  sync.Mutex
	end time.Time // when reading ends at any pace; zero: never
	err error     // why nothing more is read
}

func (c *countedBody) Read(p []byte) (int, error) {
	if err := c.failed(); err != nil {
		return 0, err
	}
	begun := c.hurry()
	n, err := c.ReadCloser.Read(p)
	c.read += int64(n)
	c.waited += time.Since(begun)
	more := int64(n)
	known := min(more, c.ahead)
	c.ahead -= known
	if full := c.hold.grow(more - known); full != nil {
		return 0, c.fail(full)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = c.fail(errTooSlow)
	}
	return n, err
}

// hurry gives what is read next, from now on, the time that is left.
func (c *countedBody) hurry() (now time.Time) {
	now = time.Now()
	if c.pace.none() {
		return now
	}
	at := now.Add(c.pace.time(c.read) - c.waited)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.end.IsZero() && c.end.Before(at) {
		at = c.end
	}
	_ = c.rc.SetReadDeadline(at) // a request without deadlines has no connection either
	return now
}

// until ends reading at a time, or as pace says where that is earlier.
func (c *countedBody) until(end time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end = end
}

func (c *countedBody) fail(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
	return err
}

// failed is what Read failed with, if it was for a limit.
func (c *countedBody) failed() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}
