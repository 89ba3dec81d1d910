package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/internal/peer"
	"github.com/semelhq/semel/internal/wire"
	"github.com/semelhq/semel/safehttp"
)

// Codes of refusals that only HTTP has.
const (
	CodeUnauthorized semel.Code = "unauthorized"
	CodeOverloaded   semel.Code = "overloaded"
	CodeBodyTooSlow  semel.Code = "body_too_slow"
	CodeTooLarge     semel.Code = "too_large"
)

// AnswerError is an HTTP answer that doesn't come from the API, but for instance from a
// proxy on the way, or from an address without a Semel service.
type AnswerError struct {
	// Status is the HTTP status.
	Status int
	// Reason says why the answer can't be used. It quotes nothing of the body.
	Reason string
}

// Error returns the status and the reason.
func (e *AnswerError) Error() string {
	return fmt.Sprintf("the answer (status %d) doesn't come from the API: %s", e.Status, e.Reason)
}

// holderHeader names the holder in a request that begins an execution.
const holderHeader = "Semel-Holder"

// request is one request, which may be sent several times.
type request struct {
	method string
	to     *peer.Listener
	path   string
	header http.Header // may be nil
	body   any         // nil: none
	// wait is how much longer than Options.Timeout one try may take.
	wait time.Duration
	// repeatable: sending it again after a lost answer does no harm.
	repeatable bool
	// more: after Options.Tries, tries continue while it reports true; may be nil.
	more func() bool
	// lost is the code of the error if there is no usable answer.
	lost semel.Code
}

// reply is a complete answer of the API: a success, or a refusal with problem set.
type reply struct {
	status  int
	body    []byte
	problem *wire.Problem
	retry   time.Duration // Retry-After; zero if there is none
	lost    semel.Code    // the request's
}

// failed is a request without a usable answer.
type failed struct {
	nothing bool // no try has sent any part of the request
	final   bool // trying again won't help
	err     error
}

func (f *failed) Error() string { return f.err.Error() }
func (f *failed) Unwrap() error { return f.err }

// send sends the request until it gets an answer or gives up: after Options.Tries, or if ctx
// would end before the next try. The error is a [failed].
func (c *Client) send(ctx context.Context, q *request) (*reply, error) {
	nothing := true
	for n := 1; ; n++ {
		r, err := c.try(ctx, q, q.body)
		var f *failed
		retry, pause := false, time.Duration(0)
		if err != nil {
			f = asFailed(err)
			nothing = nothing && f.nothing
			f.nothing = nothing
			retry = !f.final && (q.repeatable || f.nothing)
		} else if retry = retryable(r, q.repeatable); retry {
			pause = r.retry
			retry = pause <= c.opts.MaxRetryAfter
		}
		retry = retry && (n < c.opts.Tries || q.more != nil && q.more())
		if !retry || !c.pause(ctx, pause, n) {
			if err != nil {
				return nil, f
			}
			r.lost = q.lost
			return r, nil
		}
	}
}

// asFailed returns err as a failed.
func asFailed(err error) *failed {
	f, ok := errors.AsType[*failed](err)
	if !ok {
		f = &failed{err: err}
	}
	return f
}

// retryable reports whether an answer asks for another try, because the service, or a proxy in
// front of it, couldn't answer. The engine's decisions are final.
func retryable(r *reply, repeatable bool) bool {
	if r.problem == nil {
		return false
	}
	code := r.problem.Code
	unprocessed := code == CodeOverloaded || code == CodeBodyTooSlow
	return unprocessed || repeatable && transient(code)
}

// pause waits before try n+1. It reports false, without waiting, if ctx would end first.
func (c *Client) pause(ctx context.Context, asked time.Duration, n int) bool {
	d := asked + rand.N(min(c.opts.MinPause<<min(n-1, 20), c.opts.MaxPause)+1)
	if end, ok := ctx.Deadline(); ok && time.Until(end) <= d {
		return false
	}
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// try sends the request once. The error is a [failed].
func (c *Client) try(ctx context.Context, q *request, body any) (*reply, error) {
	if err := ctx.Err(); err != nil {
		return nil, &failed{nothing: true, final: true, err: context.Cause(ctx)}
	}
	try, cancel := context.WithTimeout(ctx, c.opts.Timeout+q.wait)
	defer cancel()
	resp, err := c.roundTrip(try, q, body)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, c.opts.MaxAnswer+1))
	if err != nil {
		return nil, &failed{err: fmt.Errorf("the answer broke off: %w", plain(err))}
	}
	return c.read(resp, text)
}

// roundTrip sends the request, and returns once the head of the answer has arrived.
func (c *Client) roundTrip(ctx context.Context, q *request, body any) (*http.Response, error) {
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, &failed{nothing: true, final: true, err: err}
		}
		content = bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(ctx, q.method, q.to.URL+q.path, content)
	if err != nil {
		return nil, &failed{nothing: true, final: true, err: errors.New("the request's address is not valid")}
	}
	maps.Copy(r.Header, q.header)
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if r.Header.Get("Accept") == "" {
		r.Header.Set("Accept", "application/json, application/problem+json")
	}
	resp, err := q.to.Do(r)
	if err != nil {
		return nil, c.unanswered(err)
	}
	return resp, nil
}

// unanswered returns the error of a request without an answer from the API.
func (c *Client) unanswered(err error) *failed {
	if s, ok := errors.AsType[*peer.Stranger](err); ok {
		return &failed{nothing: s.Unsent, final: lasting(s.Status), err: &AnswerError{s.Status, s.Reason}}
	}
	f := &failed{nothing: c.traced && safehttp.NothingSent(err), final: wrongServer(err), err: plain(err)}
	if unasked, ok := errors.AsType[*peer.Unasked](err); ok {
		_, wrongToken := errors.AsType[*peer.TokenError](err)
		f.nothing, f.final, f.err = true, f.final || wrongToken, plain(unasked.Err)
	}
	return f
}

// lasting reports whether asking again would only get the same answer. A proxy in front of the
// service may be able to reach it again.
func lasting(status int) bool { return status < 500 && status != http.StatusTooManyRequests }

// plain removes the URL from a net/http error, because it names records.
func plain(err error) error {
	if errors.Is(err, http.ErrSchemeMismatch) {
		return errors.New("the server at its address speaks http, not https")
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}

// wrongServer reports whether the other side isn't the intended server.
func wrongServer(err error) bool {
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return true
	}
	if errors.Is(err, http.ErrSchemeMismatch) {
		return true
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return true
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return true
	}
	_, ok := errors.AsType[tls.AlertError](err)
	return ok
}

// read turns an answer into a reply, if it comes from the API.
func (c *Client) read(resp *http.Response, text []byte) (*reply, error) {
	r := &reply{status: resp.StatusCode, body: text}
	bad := func(reason string) (*reply, error) {
		return nil, &failed{final: lasting(r.status), err: &AnswerError{r.status, reason}}
	}
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch {
	case int64(len(text)) > c.opts.MaxAnswer:
		return bad("it is larger than the client accepts")
	case r.status >= 300 && r.status < 400:
		return bad("it is a redirect, which is not followed")
	case r.status == http.StatusNoContent:
		return r, nil
	case r.status < 300:
		if media != "application/json" {
			return bad("it is not JSON")
		}
		return r, nil
	case media != semelhttp.ProblemType:
		return bad("it is not a problem document")
	}
	if !r.refused() {
		return bad(invalidProblem)
	}
	if n, err := strconv.ParseUint(resp.Header.Get("Retry-After"), 10, 31); err == nil && r.retry == 0 {
		r.retry = time.Duration(n) * time.Second
	}
	return r, nil
}

const invalidProblem = "its problem document is not valid"

// refused reads the body as a problem document. It reports false if it isn't one.
func (r *reply) refused() bool {
	r.problem = new(wire.Problem)
	if err := json.Unmarshal(r.body, r.problem); err != nil || r.problem.Code == "" {
		return false
	}
	r.retry = time.Duration(max(r.problem.RetryAfter, 0)) * time.Second
	return true
}

// decode reads the body of a success.
func decode[T any](r *reply) (*T, error) {
	v := new(T)
	if err := json.Unmarshal(r.body, v); err != nil {
		return nil, r.invalid("its members are not the expected ones")
	}
	return v, nil
}

// invalid returns the error for a success that can't be one.
func (r *reply) invalid(reason string) error {
	return lostAnswer(&AnswerError{r.status, reason}, r.lost)
}

// refusal turns the problem into an engine's error.
func (r *reply) refusal() *semel.Error {
	return &semel.Error{Code: r.problem.Code, Message: r.problem.Detail, RetryAfter: r.retry, Action: r.problem.Action}
}

// ask sends a request until it succeeds. Without a usable answer the error has the code q.lost,
// or says that nothing was sent.
func (c *Client) ask(ctx context.Context, q *request) (*reply, error) {
	r, err := c.send(ctx, q)
	switch {
	case err != nil:
		return nil, lostAnswer(err, q.lost)
	case r.problem != nil:
		return nil, r.refusal()
	}
	return r, nil
}

// call is ask, and also reads the body of the answer.
func call[T any](ctx context.Context, c *Client, q *request) (*T, *reply, error) {
	r, err := c.ask(ctx, q)
	if err != nil {
		return nil, nil, err
	}
	v, err := decode[T](r)
	return v, r, err
}

// lostAnswer returns the error if there is no usable answer.
func lostAnswer(err error, code semel.Code) *semel.Error {
	f := asFailed(err)
	if code == semel.CodeUnknown && f.nothing {
		return &semel.Error{Code: semel.CodeStoreUnavailable, Message: "the service could not be reached", Err: f.err}
	}
	e := &semel.Error{Code: code, Message: "the service did not answer", Err: f.err}
	if _, ok := errors.AsType[*AnswerError](f.err); ok {
		e.Message = "the service gave no valid answer"
	}
	return e
}
