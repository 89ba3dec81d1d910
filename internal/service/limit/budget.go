// Package limit bounds what callers can make a server hold at one time: the bytes of
// their requests, the number of requests and connections, and how long somebody may send
// or read next to nothing. It refuses or waits at once, and never queues bytes.
package limit

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/body"
)

// Bounds are how many bytes may be in flight. Zero means no bound.
type Bounds struct {
	Total     int64 // of all
	Tenant    int64 // of each tenant
	Principal int64 // of each principal of a tenant
}

// Caller pays for the bytes. A caller who can choose these values can use up other callers'
// shares, so they must be verified, or be the caller's address.
type Caller struct {
	Tenant    string
	Principal string
}

// Budget counts bytes in flight, in total, per tenant and per principal. All methods
// may be called concurrently.
//
// It remembers only callers that have bytes in flight, so its size is bounded by
// the number of requests at one time.
type Budget struct {
	bounds Bounds

	mu   sync.Mutex
	used map[share]int64
}

// share is a part of the budget: that of the server, of a tenant or of a caller.
type share struct {
	whose string
	of    Caller
	bound int64
}

func (b *Budget) shares(c Caller) [3]share {
	return [3]share{
		{"server", Caller{}, b.bounds.Total},
		{"tenant", Caller{Tenant: c.Tenant}, b.bounds.Tenant},
		{"caller", c, b.bounds.Principal},
	}
}

// NewBudget makes a budget.
func NewBudget(bounds Bounds) *Budget { return &Budget{bounds: bounds, used: map[share]int64{}} }

// ExhaustedError says why bytes could not be taken.
type ExhaustedError struct {
	// The budget of the "server", the "tenant" or the "caller" is used up.
	Whose string
	// Never is set if the bytes are more than the whole budget, so that asking again is
	// pointless.
	Never bool
	// Limit is the budget, in bytes.
	Limit int64
}

// Error names the budget.
func (e *ExhaustedError) Error() string {
	return fmt.Sprintf("the %s's budget of %d bytes in flight is used up", e.Whose, e.Limit)
}

type hold struct {
	budget *Budget
	caller Caller
	bytes  int64 // guarded by budget.mu
	closed bool  // guarded by budget.mu
}

// grow takes n more bytes, or none and returns an [*ExhaustedError]. After release it
// takes nothing.
func (h *hold) grow(n int64) error {
	b := h.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if n < 0 {
		panic(fmt.Sprintf("limit: %d bytes taken", n))
	}
	if h.closed || n == 0 {
		return nil
	}
	shares := b.shares(h.caller)
	for _, s := range shares {
		// Compared by subtraction, since the sum may not fit.
		if s.bound > 0 && n > s.bound-b.used[s] {
			return &ExhaustedError{Whose: s.whose, Limit: s.bound, Never: n > s.bound-h.bytes}
		}
	}
	for _, s := range shares {
		b.used[s] += n
	}
	h.bytes += n
	return nil
}

// fits returns nil if n bytes are no more than any whole budget.
func (b *Budget) fits(n int64) error {
	for _, s := range b.shares(Caller{}) {
		if s.bound > 0 && n > s.bound {
			return &ExhaustedError{Whose: "server", Limit: s.bound, Never: true}
		}
	}
	return nil
}

func (h *hold) release() {
	b := h.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	h.closed = true
	for _, s := range b.shares(h.caller) {
		if b.used[s] -= h.bytes; b.used[s] == 0 {
			delete(b.used, s)
		}
	}
	h.bytes = 0
}

// Options configures [Budget.Handler] and [Requests].
type Options struct {
	// Caller says who pays for a request from their budget. Defaults to one caller for all.
	Caller func(*http.Request) Caller
	// Pace is how fast a body must come. Defaults to any pace.
	Pace Pace
	// BodyTimeout is the longest time for the next bytes of a body, even if Pace would
	// allow more: a body that came fast for long must not stop for long. Defaults to a
	// minute.
	BodyTimeout time.Duration
	// TypeBase precedes the code in the type of a problem.
	TypeBase string
	// Refused is called once for every refusal: a body's reader gets [body.ErrRefused] and says
	// nothing. Optional.
	Refused func(r *http.Request, code semel.Code)
}

// reserved is what a body takes before any of it has come, so that a caller hears before
// sending it that the budget is used up. A connection reads that much ahead anyway. What
// a Content-Length announces takes nothing, because announcing costs the caller nothing.
const reserved = 4 << 10

// Handler takes the bytes of a request's body from the budget as they are read, until next
// returns. It refuses a request that doesn't fit with a problem and a Retry-After: 503 if the
// server's budget is used up, 429 if it is the tenant's or the caller's. It refuses one that
// would never fit with 413, and a body that comes too slowly with 408. A body may take longer
// the more of it comes, so these read deadlines replace the server's ReadTimeout for each body
// that next reads.
//
// If a body stops fitting while it is read, next gets an error that wraps [body.ErrRefused]
// and the [*ExhaustedError]. The refusal then replaces next's answer, unless that has begun.
func (b *Budget) Handler(next http.Handler, opts Options) http.Handler {
	opts.BodyTimeout = cmp.Or(opts.BodyTimeout, time.Minute)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 {
			next.ServeHTTP(w, r)
			return
		}
		b.handle(next, &opts, w, r)
	})
}

func (b *Budget) handle(next http.Handler, o *Options, w http.ResponseWriter, r *http.Request) {
	h := &hold{budget: b}
	if o.Caller != nil {
		h.caller = o.Caller(r)
	}
	defer h.release()
	ahead := int64(reserved)
	if r.ContentLength > 0 {
		ahead = min(ahead, r.ContentLength)
	}
	err := b.fits(r.ContentLength)
	if err == nil && r.ContentLength > 0 {
		err = h.grow(ahead)
	} else {
		ahead = 0 // a body of unknown length may be short
	}
	if err != nil {
		o.refuse(w, r, err, false)
		return
	}
	counted := &countedBody{
		ReadCloser: r.Body, hold: h, ahead: ahead, pace: o.Pace, timeout: o.BodyTimeout,
		stream: r.ProtoMajor == 2,
	}
	counted.deadline.set = http.NewResponseController(w).SetReadDeadline
	counted.left = counted.bound(counted.pace.Grace)
	counted.clearDeadline()
	inner := *r
	inner.Body = counted
	aw := &answer{ResponseWriter: w, opts: o, r: r, body: counted}
	if len(w.Header()) > 0 {
		aw.before = w.Header().Clone()
	}
	next.ServeHTTP(aw, &inner)
	aw.start() // next may have returned without an answer
}

// errTooSlow is why a body was not read to its end.
var errTooSlow = errors.New("limit: the body comes too slowly")

// countedBody takes the bytes that are read from the budget. One goroutine at a time
// reads it, as any body, but perhaps not the one that answers.
type countedBody struct {
	io.ReadCloser
	hold   *hold
	ahead  int64 // taken from the budget, and not read yet
	stream bool  // of HTTP/2

	pace     Pace
	timeout  time.Duration
	left     time.Duration // for the next read; time between reads doesn't count
	deadline deadline

	mu  sync.Mutex
	err error // why nothing more is read
}

func (c *countedBody) Read(p []byte) (int, error) {
	if err := c.failed(); err != nil {
		return 0, err
	}
	begun := time.Now()
	_ = c.deadline.extend(begun.Add(c.left)) // a request without deadlines has no connection
	n, err := c.ReadCloser.Read(p)
	c.clearDeadline()
	c.left = c.bound(c.left + c.pace.time(n) - time.Since(begun))
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

func (c *countedBody) bound(left time.Duration) time.Duration {
	if c.pace.none() {
		return c.timeout
	}
	return min(left, c.timeout)
}

// clearDeadline removes the deadline between reads. In HTTP/2 it would end the stream
// even then, at the cost of a caller who waits for a slow upstream. In HTTP/1 it only
// affects the next read, such as the server's of an unread rest.
func (c *countedBody) clearDeadline() { c.deadline.over(c.stream) }

func (c *countedBody) fail(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = fmt.Errorf("%w: %w", body.ErrRefused, err)
	return c.err
}

func (c *countedBody) failed() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}
