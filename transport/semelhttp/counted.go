package semelhttp

import (
	"context"
	"crypto/tls"
	"net"
	"net/http/httptrace"
	"sync/atomic"
)

// countedConn knows whether anything was written to it, which tells a request that
// was lost with its connection from one that never left.
type countedConn struct {
	net.Conn
	writes atomic.Int64 // those that may have sent something
}

// Write counts before it writes, so that whoever sees no change after the
// connection was closed knows that there will be none.
func (c *countedConn) Write(p []byte) (int, error) {
	c.writes.Add(1)
	n, err := c.Conn.Write(p)
	if n == 0 && err != nil {
		c.writes.Add(-1)
	}
	return n, err
}

// Close does not leave the connection's port waiting: there is one connection for
// each request, and ports would run out at some hundred requests per second. The
// other side has nothing more to hear, for its answer was read or given up.
func (c *countedConn) Close() error {
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	return c.Conn.Close()
}

type dialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)

func counted(dial dialFunc) dialFunc {
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &countedConn{Conn: c}, nil
	}
}

// sending follows one request to its connection.
type sending struct {
	connected atomic.Bool
	conn      atomic.Pointer[countedConn] // nil if nobody counts
	before    atomic.Int64                // the writes of the greeting by TLS
}

func (s *sending) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		inner := info.Conn
		if t, ok := inner.(*tls.Conn); ok {
			inner = t.NetConn()
		}
		if c, ok := inner.(*countedConn); ok {
			s.before.Store(c.writes.Load())
			s.conn.Store(c)
		}
		s.connected.Store(true)
	}}
}

// nothing reports whether it is proved that nothing of a request that has failed
// was sent: there was no connection, which is there when it is dialled, greeted by
// TLS and through the proxy; or it was closed before anything could be written.
func (s *sending) nothing() bool {
	if !s.connected.Load() {
		return true
	}
	c := s.conn.Load()
	return c != nil && c.writes.Load() == s.before.Load()
}
