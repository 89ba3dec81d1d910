package limit

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"strconv"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/transport/semelhttp"
)

// Codes of the refusals of this package.
const (
	// CodeOverloaded: the server's budget is used up, or the tenant's.
	CodeOverloaded semel.Code = "overloaded"
	// CodeOverBudget: the body alone is more than the whole budget.
	CodeOverBudget semel.Code = "over_budget"
)

// Options configures [Budget.Handler]. Nil means the defaults.
type Options struct {
	// Tenant tells whose budget a request uses. It must come from a verified
	// identity: whoever may choose it uses up the budget of others. Defaults to
	// one tenant for all.
	Tenant func(*http.Request) string
	// TypeBase precedes the code in the type of a problem. Defaults to
	// "urn:semel:problem:".
	TypeBase string
	// RetryAfter is what a refused caller is told to wait, in whole seconds.
	// Defaults to 1 s.
	RetryAfter time.Duration
}

// Handler takes the bytes of a request's body while next handles it: those of
// Content-Length before anything is read, otherwise as they are read. A request
// that does not fit is refused with a problem and a Retry-After: 503 where the
// server's budget is used up, 429 where it is the tenant's. One that would never
// fit is refused with 413.
//
// A body without a length that stops fitting while it is read gives next an
// [*ExhaustedError]. What next answers is then replaced by the refusal, if it has
// not begun to answer before.
func (b *Budget) Handler(next http.Handler, opts *Options) http.Handler {
	m := &middleware{budget: b, next: next}
	if opts != nil {
		m.opts = *opts
	}
	m.opts.TypeBase = cmp.Or(m.opts.TypeBase, "urn:semel:problem:")
	m.opts.RetryAfter = cmp.Or(m.opts.RetryAfter, time.Second)
	return m
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
	if m.opts.Tenant != nil {
		h.tenant = m.opts.Tenant(r)
	}
	defer h.release()
	if r.ContentLength > 0 {
		if err := h.grow(r.ContentLength); err != nil {
			m.refuse(w, r, err)
			return
		}
		m.next.ServeHTTP(w, r)
		return
	}
	body := &countedBody{ReadCloser: r.Body, hold: h}
	counted := *r
	counted.Body = body
	aw := &answer{ResponseWriter: w, m: m, r: r, body: body, before: w.Header().Clone()}
	m.next.ServeHTTP(aw, &counted)
	aw.start() // next may have returned without a word
}

// countedBody takes what is read. It is read by one goroutine at a time, as any
// body is, but perhaps by another than the one that answers.
type countedBody struct {
	io.ReadCloser
	hold *hold
	err  error // guarded by hold.budget.mu
}

func (c *countedBody) Read(p []byte) (int, error) {
	if err := c.exhausted(); err != nil {
		return 0, err
	}
	n, err := c.ReadCloser.Read(p)
	if full := c.hold.grow(int64(n)); full != nil {
		c.hold.budget.mu.Lock()
		defer c.hold.budget.mu.Unlock()
		c.err = full
		return 0, full
	}
	return n, err
}

// exhausted is what Read failed with, if it was for the budget.
func (c *countedBody) exhausted() error {
	c.hold.budget.mu.Lock()
	defer c.hold.budget.mu.Unlock()
	return c.err
}

// answer replaces an answer to a body that did not fit.
type answer struct {
	http.ResponseWriter
	m       *middleware
	r       *http.Request
	body    *countedBody
	before  http.Header // as it was before next prepared another answer
	begun   bool        // next's own answer
	refused bool
}

// start decides whose answer it is.
func (a *answer) start() (own bool) {
	if a.begun || a.refused {
		return a.begun
	}
	if err := a.body.exhausted(); err != nil {
		a.refused = true
		header := a.ResponseWriter.Header()
		clear(header)
		maps.Copy(header, a.before)
		a.m.refuse(a.ResponseWriter, a.r, err)
		return false
	}
	a.begun = true
	return true
}

func (a *answer) WriteHeader(status int) {
	informational := status >= 100 && status < 200 && status != http.StatusSwitchingProtocols
	if !a.refused && informational || a.start() {
		a.ResponseWriter.WriteHeader(status)
	}
}

func (a *answer) Write(p []byte) (int, error) {
	if !a.start() {
		return len(p), nil
	}
	return a.ResponseWriter.Write(p)
}

// FlushError begins the answer as Flush of the server's own writer does.
func (a *answer) FlushError() error {
	if !a.start() {
		return nil
	}
	return http.NewResponseController(a.ResponseWriter).Flush()
}

// Flush is FlushError for those that look for [http.Flusher].
func (a *answer) Flush() { _ = a.FlushError() }

// Unwrap lets [http.ResponseController] reach the rest: deadlines, hijacking.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// refuse answers for the budget.
func (m *middleware) refuse(w http.ResponseWriter, r *http.Request, err error) {
	e, ok := errors.AsType[*ExhaustedError](err)
	if !ok {
		panic(err) // grow returns no other
	}
	doc := semelhttp.Problem{
		Status: http.StatusServiceUnavailable, Code: CodeOverloaded, Title: "Too much in flight",
		Detail: "The server holds as many bytes of other requests as it may. Nothing was executed. Send the same request again later.",
	}
	if e.Tenant {
		doc.Status = http.StatusTooManyRequests
		doc.Detail = "Other requests of this tenant hold as many bytes as it may. Nothing was executed. Send the same request again later."
	}
	header := w.Header()
	if e.Never {
		doc.Status, doc.Code, doc.Title = http.StatusRequestEntityTooLarge, CodeOverBudget, "Body too large"
		doc.Detail = "The request's body is larger than the " + strconv.FormatInt(e.Limit, 10) + " bytes that may be in flight at all. Nothing was executed."
	} else {
		doc.RetryAfter = int64((m.opts.RetryAfter + time.Second - 1) / time.Second)
		header.Set("Retry-After", strconv.FormatInt(doc.RetryAfter, 10))
	}
	doc.Type = m.opts.TypeBase + string(doc.Code)
	text, err := json.Marshal(doc)
	if err != nil {
		panic(err) // strings and numbers always have a JSON form
	}
	header.Set("Content-Type", semelhttp.ProblemType)
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Content-Length", strconv.Itoa(len(text)))
	if r.ProtoMajor == 1 {
		// What is left of the body is not worth reading. In HTTP/2 it can be
		// cancelled, and this would end the other requests' connection.
		header.Set("Connection", "close")
	}
	w.WriteHeader(doc.Status)
	_, _ = w.Write(text) // a caller that is gone will ask again
}
