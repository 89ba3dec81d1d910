// Package carrier sends a request on one connection, and knows whether anything of it has
// left. Over HTTP/1.1 that is a connection that takes one request at a time and looks before
// it is used again, over HTTP/2 it is a stream. Package safehttp decides which, and when to
// try another one.
package carrier

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"syscall"
)

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
	sending atomic.Pointer[Sending] // nil: the request may be sent elsewhere too
	look    atomic.Bool             // look before writing the first byte of sending
	spent   atomic.Bool             // for no further request with an effect
}

// Errors of connections that took nothing of a request.
var (
	errNotQuiet = errors.New("safehttp: the connection was closed while nobody used it")
	errBegun    = errors.New("safehttp: the connection broke after the request was begun on it")
)

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

// Sending follows one request to its connection.
type Sending struct {
	begun  atomic.Pointer[carrier] // the only connection that may have got any of it
	reused atomic.Bool             // whether its last connection was used before
}

// unknown stands for a connection that doesn't count the bytes written to it.
var unknown carrier

// Trace follows the request to its connection, and has a reused one looked at.
func (s *Sending) Trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		s.reused.Store(info.Reused)
		if c := carrierOf(info.Conn); c != nil {
			c.look.Store(info.Reused)
			c.sending.Store(s)
		} else {
			s.begun.Store(&unknown)
		}
	}}
}

// Free is for requests that net/http may send as often as it likes.
func Free() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		if c := carrierOf(info.Conn); c != nil {
			c.sending.Store(nil)
		}
	}}
}

// carrierOf finds the carrier below a connection; nil if there is none.
func carrierOf(conn net.Conn) *carrier {
	for {
		switch c := conn.(type) {
		case *carrier:
			return c
		case *tls.Conn: // nested if the proxy is reached by TLS too
			conn = c.NetConn()
		default:
			return nil
		}
	}
}

// Spend keeps other requests with an effect off the connection.
func (s *Sending) Spend() {
	if c := s.begun.Load(); c != nil && c != &unknown {
		c.spent.Store(true)
	}
}

// Nothing reports whether it is proved that nothing of a failed request was sent: no
// connection was dialled, got through its TLS handshake and through the proxy, or nothing
// could be written to any.
func (s *Sending) Nothing() bool { return s.begun.Load() == nil }

// Reused reports whether the last connection of the request was used before.
func (s *Sending) Reused() bool { return s.reused.Load() }

// Error is that of a request which was sent at most once.
type Error struct {
	Nothing bool // of it was sent, or it was refused unread
	Err     error
}

// Error is the text of Err.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }
