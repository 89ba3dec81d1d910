// Package carrier sends a request on one connection, and knows whether anything of it has
// left. Over HTTP/1.1 that is a connection that takes one request at a time and looks before
// it is used again, over HTTP/2 it is a stream. As long as nothing has left, it tries another
// connection. Package safehttp decides which way a request goes.
package carrier

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"syscall"
)

// Begin sends a request over HTTP/1.1 on the first connection of over, which are those of
// [Dial], that takes anything of it. Each reused connection that doesn't is closed, so the
// loop ends.
func Begin(over *http.Transport, r *http.Request) (*http.Response, error) {
	all := bodies{Request: r}
	for {
		var sent sending
		body, err := all.next(&sent)
		if err != nil {
			all.close()
			return nil, &Error{Nothing: true, Err: err}
		}
		once := r.WithContext(httptrace.WithClientTrace(r.Context(), sent.trace()))
		once.Body, once.GetBody = body, nil
		resp, err := over.RoundTrip(once)
		if err == nil {
			// Behind such an answer the server may close the connection without saying so.
			if c := sent.begun.Load(); c != nil && c != &unknown && resp.StatusCode >= http.StatusInternalServerError {
				c.spent.Store(true)
			}
			resp.Request = r
			return resp, nil
		}
		if nothing := sent.nothing(); !nothing || !sent.reused.Load() {
			all.close()
			return nil, &Error{Nothing: nothing, Err: err}
		}
	}
}

// Once sends a request once on whatever connection base has for it.
func Once(base http.RoundTripper, r *http.Request) (*http.Response, error) {
	var sent sending
	once := r.WithContext(httptrace.WithClientTrace(r.Context(), sent.trace()))
	once.GetBody = nil
	if r.Body == nil || r.Body == http.NoBody {
		once.Body, once.ContentLength = emptyBody{}, -1
	}
	resp, err := base.RoundTrip(once)
	if err != nil {
		// Only http.Transport certainly reports its connections.
		_, tells := base.(*http.Transport)
		return nil, &Error{Nothing: tells && sent.nothing(), Err: err}
	}
	resp.Request = r
	return resp, nil
}

// emptyBody is an empty body that net/http can't recognize as empty.
type emptyBody struct{}

func (emptyBody) Read([]byte) (int, error) { return 0, io.EOF }
func (emptyBody) Close() error             { return nil }

// Often sends a request that net/http may send as often as it likes.
func Often(over *http.Transport, r *http.Request) (*http.Response, error) {
	return over.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), (*sending)(nil).trace())))
}

// sending follows one request to its connection. A nil one is for requests that may be sent
// again.
type sending struct {
	begun  atomic.Pointer[carrier] // the only connection that may have got any of it
	reused atomic.Bool             // whether its last connection was used before
}

// unknown stands for a connection that doesn't count the bytes written to it.
var unknown carrier

// trace follows the request to its connection, and has a reused one looked at.
func (s *sending) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		conn := info.Conn
		for { // nested if the proxy is reached by TLS too
			outer, ok := conn.(*tls.Conn)
			if !ok {
				break
			}
			conn = outer.NetConn()
		}
		if s != nil {
			s.reused.Store(info.Reused)
		}
		if c, ok := conn.(*carrier); ok {
			c.look.Store(info.Reused)
			c.sending.Store(s)
		} else if s != nil {
			s.begun.Store(&unknown)
		}
	}}
}

// nothing reports whether it is proved that nothing of a failed request was sent: no
// connection was dialled, got through its TLS handshake and through the proxy, or nothing
// could be written to any.
func (s *sending) nothing() bool { return s.begun.Load() == nil }

// carrier is a connection that records whether a request was begun on it. It lets a
// request begin on one connection only, and on a reused one only if nothing has arrived
// on it since: no close, at least none that has come through.
//
// net/http reads its idle connections all the time, but the reading goroutine may get to
// run only after a request was written, and then its outcome is unknown.
type carrier struct {
	net.Conn
	raw     syscall.RawConn         // nil: quiet can't look at it
	once    bool                    // closed after one request
	sending atomic.Pointer[sending] // nil: the request may be sent elsewhere too
	look    atomic.Bool             // look before writing the first byte of sending
	spent   atomic.Bool             // for no further request with an effect
}

// Errors of connections that took nothing of a request.
var (
	errNotQuiet = errors.New("safehttp: the connection was closed while nobody used it")
	errBegun    = errors.New("safehttp: the connection broke after the request was begun on it")
)

type dialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)

// Dial wraps the connections that dial makes. If once, each is for one request.
func Dial(dial dialFunc, once bool) dialFunc {
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		c := &carrier{Conn: conn, once: once}
		if s, ok := conn.(syscall.Conn); ok {
			if c.raw, err = s.SyscallConn(); err != nil {
				return nil, errors.Join(err, conn.Close())
			}
		}
		return c, nil
	}
}

// Write records that the request has begun before it writes. So if the request hasn't
// begun when the connection is closed, it never will on this one.
func (c *carrier) Write(p []byte) (int, error) {
	s := c.sending.Load()
	if s == nil || s.begun.Load() == c {
		return c.Conn.Write(p)
	}
	if c.look.Load() && (c.spent.Load() || !quiet(c.raw)) {
		_ = c.Conn.Close() // so that nothing can be written, not even the close_notify of TLS
		return 0, errNotQuiet
	}
	if !s.begun.CompareAndSwap(nil, c) {
		return 0, errBegun
	}
	n, err := c.Conn.Write(p)
	if n == 0 && err != nil {
		s.begun.Store(nil)
	}
	return n, err
}

// Close resets a connection that was for one request instead of leaving its port in
// TIME_WAIT: at some hundred requests per second ports would run out. The other side has
// nothing more to receive, because its answer was read or given up.
func (c *carrier) Close() error {
	if tcp, ok := c.Conn.(*net.TCPConn); ok && c.once {
		_ = tcp.SetLinger(0)
	}
	return c.Conn.Close()
}

// CloseWrite is for protocols that take over the connection.
func (c *carrier) CloseWrite() error {
	if w, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return http.ErrNotSupported
}

// Error is that of a request which was sent at most once.
type Error struct {
	Nothing bool // of it was sent, or it was refused unread
	Err     error
}

// Error is the text of Err.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }
