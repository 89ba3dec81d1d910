package safehttp

import (
	"errors"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/semelhq/semel/safehttp/internal/carrier"
)

// Transport makes requests that have an effect, and sends each of them at most once. The
// transport of net/http doesn't promise that: when a reused connection breaks, it sends a
// request with an Idempotency-Key header again, because it assumes that the header makes
// that harmless. That is true only if the other side honours the key.
//
// If a connection turns out to be closed when Transport looks at it before it begins a
// request, see Look, the request goes to another one: nothing of it was sent. Requests
// without a body do the same, because net/http would send them again without asking; if
// Base speaks HTTP/1.1, Transport takes over. It leaves methods without effects (GET,
// HEAD, OPTIONS, TRACE) to net/http.
//
// Over HTTP/2, where a server can say that it won't process a request (REFUSED_STREAM),
// [NothingSent] tells that too. What a server means by GOAWAY, net/http doesn't tell, so a
// request that it catches under way has an unknown outcome, as after every other error. If
// the server may choose the protocol, that holds from the second request on.
//
// Reading an answer fails with [io.ErrUnexpectedEOF] if only the end of its connection ends it, and
// it is plain JSON that ends within an object, a list or a text. Any other such answer counts as
// whole.
//
// The zero value is ready for use. You may use it concurrently, but don't change it after
// its first use.
type Transport struct {
	// Base makes the connections. It should be an [*http.Transport]. Any other gets
	// requests without a body as requests with an empty one, which HTTP/1.1 sends
	// chunked, and its errors prove nothing. Defaults to [http.DefaultTransport].
	Base http.RoundTripper
	// Look is for a Base that is an [*http.Transport], and a server that speaks HTTP/1.1.
	// A server that stops closes its idle connections, and if a request is just then
	// written to one of them, its outcome is unknown. With Look, a reused connection gets
	// a request only if it is still open. That leaves only requests that are on their way
	// when the server closes the connection without looking itself.
	//
	// A server may close a connection behind an answer from 500 without saying so, as
	// uvicorn does, and a close that is still on its way can't be seen. So Look doesn't use
	// a connection again after such an answer.
	//
	// Look needs the sockets of Unix and a connection that is a [syscall.Conn]. If Transport
	// can't look, each request with an effect gets a new connection. With https, looking
	// starts once the server has chosen HTTP/1.1. Use Look for a transport with one server.
	Look bool
	// Fresh, instead of Look, gives every request with an effect a connection of its own.
	// That costs more, but no idle connection can be closed under a request.
	Fresh bool

	once  sync.Once
	base  http.RoundTripper
	http1 *http.Transport  // like Base, with carriers for connections; may be nil
	http2 *carrier.Streams // may be nil
	major atomic.Int32     // of the HTTP version that the server chose over TLS; zero: not known
}

// errStatus is why an answer isn't one: net/http takes any three digits for a status.
var errStatus = errors.New("safehttp: the answer's status is below 100")

// RoundTrip sends the request once. [NothingSent] reports whether an error proves that
// nothing was sent.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	t.once.Do(t.init)
	version := t.version(r.URL.Scheme)
	harmless := r.Method == "" || SafeMethod(r.Method)
	empty := r.Body == nil || r.Body == http.NoBody
	var resp *http.Response
	var err error
	switch looks := t.http1 != nil && (t.Look || t.Fresh) && version == 1; {
	case harmless && looks && !t.Fresh:
		resp, err = carrier.Often(t.http1, r)
	case harmless:
		resp, err = t.base.RoundTrip(r)
	case t.http2 != nil && version == 2:
		if resp, err = t.http2.RoundTrip(r); errors.Is(err, carrier.ErrNotHTTP2) {
			t.major.Store(0) // nothing was sent, and Base asks what the server speaks now
			resp, err = carrier.Once(t.base, r)
		}
	case looks, t.http1 != nil && empty:
		resp, err = carrier.Begin(t.http1, r)
	default:
		resp, err = carrier.Once(t.base, r)
	}
	if err != nil {
		return nil, err
	}
	if resp.TLS != nil {
		t.major.Store(int32(resp.ProtoMajor))
	}
	if resp.StatusCode < http.StatusContinue {
		_ = resp.Body.Close()
		return nil, &carrier.Error{Err: errStatus}
	}
	if !harmless && isUnframed(resp) {
		resp.Body = &unframed{ReadCloser: resp.Body}
	}
	return resp, nil
}

func (t *Transport) init() {
	t.base = t.Base
	if t.base == nil {
		t.base = http.DefaultTransport
	}
	ht, ok := t.base.(*http.Transport)
	if !ok {
		return
	}
	if ht.DialTLSContext != nil {
		return // a clone could not make connections as Base does
	}
	if ht.Protocols == nil || ht.Protocols.HTTP2() || ht.Protocols.UnencryptedHTTP2() {
		t.http2 = carrier.NewStreams(ht)
	}
	if ht.Protocols != nil && !ht.Protocols.HTTP1() {
		return
	}
	t.http1 = ht.Clone()
	t.http1.DialContext = carrier.Dial(ht.DialContext, t.Fresh)
	t.http1.DisableKeepAlives = ht.DisableKeepAlives || t.Fresh
	t.http1.ForceAttemptHTTP2 = false
	t.http1.TLSNextProto = nil
	t.http1.Protocols = new(http.Protocols)
	t.http1.Protocols.SetHTTP1(true)
	if t.http1.TLSClientConfig != nil {
		t.http1.TLSClientConfig.NextProtos = nil // Base may have filled them in for HTTP/2
	}
}

// version is the HTTP version that the server of a request speaks; zero: that isn't known.
func (t *Transport) version(scheme string) int32 {
	base, ok := t.base.(*http.Transport)
	if !ok {
		return 0
	}
	switch p := base.Protocols; {
	case scheme == "http" && (p == nil || !p.UnencryptedHTTP2()):
		return 1
	case scheme == "http" && p.HTTP1():
		return 0
	case scheme == "http":
		return 2
	case p != nil && !p.HTTP2():
		return 1
	case p != nil && !p.HTTP1():
		return 2
	}
	return t.major.Load()
}

// CloseIdleConnections closes the idle connections of Base and of its HTTP/1.1 clone.
func (t *Transport) CloseIdleConnections() {
	t.once.Do(t.init)
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
	if t.http1 != nil {
		t.http1.CloseIdleConnections()
	}
	if t.http2 != nil {
		t.http2.CloseIdle()
	}
}

// NothingSent reports whether err, which comes from a request through [Transport] or
// [Retrier], proves that no effect can have happened: there was no connection, or none
// took a byte of the request, or the server said by HTTP/2 that it refuses to process it.
// Of a Retrier that is so of all its attempts. Inside semel.Effect you may mark the error
// with semel.Aborted. If it returns false, nothing is proved.
func NothingSent(err error) bool {
	e, ok := errors.AsType[*carrier.Error](err)
	return ok && e.Nothing
}

// SafeMethod reports whether a method promises to change nothing (RFC 9110 section
// 9.2.1), so that it doesn't matter how often you send it. Methods are case-sensitive:
// get isn't GET, and could do anything.
func SafeMethod(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return false
}
