package semelhttp

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
)

// SafeTransport makes requests that have an effect, and sends each of them at
// most once. The transport of net/http does not promise that: when a connection
// that was used before breaks, it sends a request with an Idempotency-Key header
// again, on the theory that this header makes it harmless. That is true only
// where the other side honours the key.
//
// A request with a body is sent without GetBody. One without a body, which
// net/http would send again just so, gets a connection of its own; see also Fresh. Methods
// without effects (GET, HEAD, OPTIONS, TRACE) pass as they are.
//
// Over HTTP/2 a request that the server says it did not process may be sent
// again; that is one execution.
//
// The zero value is ready for use. It may be used concurrently and may not be
// changed after its first use.
type SafeTransport struct {
	// Base makes the connections. It should be an [*http.Transport]: any other
	// gets requests without a body as requests with an empty one, which are
	// sent chunked over HTTP/1.1, and its errors prove nothing. Defaults to [http.DefaultTransport].
	Base http.RoundTripper
	// Fresh gives every request with an effect a connection of its own, where Base
	// is an [*http.Transport] and the other side speaks HTTP/1.1. A server that
	// stops closes the connections which are idle just then, and a request that was
	// sent on one of them meanwhile is lost without a proof that it is: its outcome
	// is unknown. On a new connection it is read. With https this begins once the
	// server is seen to choose HTTP/1.1; HTTP/2 says by itself what it did not
	// process. It is for a transport with one server.
	Fresh bool

	once  sync.Once
	base  http.RoundTripper
	fresh *http.Transport // makes a new connection for every request; may be nil
	old   atomic.Bool     // the server was seen to speak HTTP/1.1 over TLS
}

// RoundTrip sends the request once. [NothingSent] tells whether an error proves
// that nothing left.
func (t *SafeTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	t.once.Do(t.init)
	switch r.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		resp, err := t.base.RoundTrip(r)
		t.note(resp)
		return resp, err
	}
	var sent sending
	once := *r.WithContext(httptrace.WithClientTrace(r.Context(), sent.trace()))
	once.GetBody = nil
	base := t.base
	empty := r.Body == nil || r.Body == http.NoBody
	switch {
	case t.fresh != nil && (empty || t.Fresh && t.speaksHTTP1(r)):
		base = t.fresh
	case empty:
		once.Body, once.ContentLength = emptyBody{}, -1
	}
	resp, err := base.RoundTrip(&once)
	if err != nil {
		// Others than http.Transport may not tell of their connections.
		_, tells := base.(*http.Transport)
		return nil, &sendError{nothing: tells && sent.nothing(), err: err}
	}
	t.note(resp)
	resp.Request = r
	return resp, nil
}

// note remembers what a server speaks that could choose.
func (t *SafeTransport) note(resp *http.Response) {
	if resp != nil && resp.TLS != nil {
		t.old.Store(resp.ProtoMajor == 1)
	}
}

// speaksHTTP1 reports whether the server of a request does.
func (t *SafeTransport) speaksHTTP1(r *http.Request) bool {
	p := t.base.(*http.Transport).Protocols
	if r.URL.Scheme == "http" {
		return p == nil || !p.UnencryptedHTTP2()
	}
	return t.old.Load() || p != nil && !p.HTTP2()
}

func (t *SafeTransport) init() {
	t.base = t.Base
	if t.base == nil {
		t.base = http.DefaultTransport
	}
	ht, ok := t.base.(*http.Transport)
	if !ok {
		return
	}
	if p := ht.Protocols; p != nil && !p.HTTP1() || ht.DialTLSContext != nil {
		return // what follows would make connections that it can't use
	}
	t.fresh = ht.Clone()
	t.fresh.DisableKeepAlives = true
	t.fresh.DialContext = counted(ht.DialContext)
	t.fresh.ForceAttemptHTTP2 = false
	t.fresh.TLSNextProto = nil
	t.fresh.Protocols = new(http.Protocols)
	t.fresh.Protocols.SetHTTP1(true)
	if t.fresh.TLSClientConfig != nil {
		t.fresh.TLSClientConfig.NextProtos = nil // which Base may have filled in for HTTP/2
	}
}

// CloseIdleConnections closes those of Base.
func (t *SafeTransport) CloseIdleConnections() {
	t.once.Do(t.init)
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// emptyBody is a body that net/http does not know to be empty.
type emptyBody struct{}

func (emptyBody) Read([]byte) (int, error) { return 0, io.EOF }
func (emptyBody) Close() error             { return nil }

// sendError is an error of a request that was sent at most once.
type sendError struct {
	nothing bool
	err     error
}

func (e *sendError) Error() string { return e.err.Error() }
func (e *sendError) Unwrap() error { return e.err }

// NothingSent reports whether err, which comes from a request through
// [SafeTransport] or [Transport], proves that not a byte of the request was sent:
// there was no connection, or it was closed before anything was written. Then no effect can have happened, and inside
// semel.Effect the error may be marked with semel.Aborted. For every other error
// it is false, which proves nothing.
func NothingSent(err error) bool {
	e, ok := errors.AsType[*sendError](err)
	return ok && e.nothing
}
