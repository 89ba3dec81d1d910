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
	"github.com/semelhq/semel/transport/semelhttp"
)

// Codes of refusals that HTTP needs and an engine does not know.
const (
	CodeUnauthorized semel.Code = "unauthorized"
	CodeRateLimited  semel.Code = "rate_limited"
	CodeTooLarge     semel.Code = "too_large"
)

// AnswerError is an HTTP answer that is none of the API's, for instance from a
// proxy on the way, or from an address where no Semel service is.
type AnswerError struct {
	// Status is the HTTP status.
	Status int
	// Reason says what is wrong with the answer. It has nothing of its body.
	Reason string
}

// Error is the status and the reason.
func (e *AnswerError) Error() string {
	return fmt.Sprintf("the answer, with status %d, is not one of the API: %s", e.Status, e.Reason)
}

// holderHeader names the holder of what a beginning starts.
const holderHeader = "Semel-Holder"

// request is one request, which may be sent several times.
type request struct {
	method, url string
	header      http.Header // may be nil
	body        any         // nil: none
	// again is the body of every try but the first, where it differs.
	again any
	// wait is how much longer than Options.Timeout one try may take.
	wait time.Duration
	// repeatable: sending again after a lost answer can do no harm.
	repeatable bool
}

// reply is a whole answer of the API: a success, or a refusal with problem set.
type reply struct {
	status  int
	body    []byte
	problem *problem
	retry   time.Duration // Retry-After; zero if there is none
	tries   int
}

// failed is a request without a usable answer.
type failed struct {
	nothing bool // it is proved that nothing of the request was sent, by any try
	final   bool // trying again will not help
	err     error
}

func (f *failed) Error() string { return f.err.Error() }
func (f *failed) Unwrap() error { return f.err }

// send sends the request until it has an answer, or gives up: after
// Options.Tries, or earlier where ctx would end before the next try. While more,
// if given, says so, it goes on after that. The error is a [failed].
func (c *Client) send(ctx context.Context, q *request, more func() bool) (*reply, error) {
	nothing := true
	for n := 1; ; n++ {
		body := q.body
		if n > 1 && q.again != nil {
			body = q.again
		}
		r, err := c.try(ctx, q, body)
		if r != nil {
			r.tries = n
		}
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
		retry = retry && (n < c.opts.Tries || more != nil && more())
		if !retry || !c.pause(ctx, pause, n) {
			if err != nil {
				return nil, f
			}
			return r, nil
		}
	}
}

// asFailed is err as what it is always.
func asFailed(err error) *failed {
	f, ok := errors.AsType[*failed](err)
	if !ok {
		f = &failed{err: err}
	}
	return f
}

// retryable reports whether an answer asks for another try: the service, or what
// stands before it, was not able to answer. What the engine decided is final.
func retryable(r *reply, repeatable bool) bool {
	if r.problem == nil {
		return false
	}
	switch r.problem.Code {
	case CodeRateLimited:
		return true
	case semel.CodeStoreUnavailable, semel.CodeUnknown, semel.CodeClosed, "internal", "body_unreadable":
		return repeatable
	}
	return false
}

// pause waits before try n+1. It reports false, and does not wait, where ctx would
// end meanwhile.
func (c *Client) pause(ctx context.Context, asked time.Duration, n int) bool {
	d := asked + rand.N(min(c.opts.MinPause<<min(n-1, 20), c.opts.MaxPause)+1)
	if end, ok := ctx.Deadline(); ok && time.Until(end) <= d {
		return false
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
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

// roundTrip sends the request and gets the head of the answer.
func (c *Client) roundTrip(ctx context.Context, q *request, body any) (*http.Response, error) {
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, &failed{nothing: true, final: true, err: err}
		}
		content = bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(ctx, q.method, q.url, content)
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
	token, err := c.token()
	if err != nil {
		return nil, &failed{nothing: true, final: true, err: err}
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return nil, &failed{nothing: c.traced && semelhttp.NothingSent(err), final: hopeless(err), err: plain(err)}
	}
	return resp, nil
}

// plain takes the address off an error of net/http: it names records.
func plain(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}

// hopeless reports whether the other side is not the one that was meant.
func hopeless(err error) bool {
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
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

// read makes a reply of an answer, if it is one of the API.
func (c *Client) read(resp *http.Response, text []byte) (*reply, error) {
	r := &reply{status: resp.StatusCode, body: text}
	bad := func(reason string) (*reply, error) {
		// What stands before the service may be able to reach it again.
		return nil, &failed{final: r.status < 500 && r.status != http.StatusTooManyRequests, err: &AnswerError{r.status, reason}}
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
	r.problem = new(problem)
	if err := json.Unmarshal(text, r.problem); err != nil || r.problem.Code == "" {
		return bad("its problem document is not valid")
	}
	r.retry = time.Duration(max(r.problem.RetryAfter, 0)) * time.Second
	if n, err := strconv.ParseUint(resp.Header.Get("Retry-After"), 10, 31); err == nil && r.retry == 0 {
		r.retry = time.Duration(n) * time.Second
	}
	return r, nil
}

// decode reads the body of a success.
func decode[T any](r *reply) (*T, error) {
	v := new(T)
	if err := json.Unmarshal(r.body, v); err != nil {
		return nil, &failed{final: true, err: &AnswerError{r.status, "its members are not the expected ones"}}
	}
	return v, nil
}

// err is a refusal as an error of the engine.
func (p *problem) err(retry time.Duration) *semel.Error {
	return &semel.Error{Code: p.Code, Message: p.Detail, RetryAfter: retry}
}

// call sends a request and reads the answer. Without a usable one the error has
// the given code, or says that nothing was sent.
func call[T any](ctx context.Context, c *Client, q *request, lost semel.Code) (*T, *reply, error) {
	r, err := c.send(ctx, q, nil)
	if err == nil && r.problem != nil {
		return nil, r, r.problem.err(r.retry)
	}
	var v *T
	if err == nil {
		v, err = decode[T](r)
	}
	if err != nil {
		return nil, r, lostAnswer(err, lost)
	}
	return v, r, nil
}

// lostAnswer is what is known without an answer.
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
