package limit

import (
	"errors"
	"net"
	"os"
	"sync"
	"time"
)

// Listener accepts at most limit connections of l at one time. At the limit Accept waits
// until one is closed; the system keeps the next callers waiting, and refuses those
// beyond its own queue. Put it below TLS.
//
// A caller who reads more slowly than pace allows loses the connection: a write then
// fails with [os.ErrDeadlineExceeded].
func Listener(l net.Listener, limit int, pace Pace) net.Listener {
	return &listener{Listener: l, pace: pace, slots: make(chan struct{}, limit), closed: make(chan struct{})}
}

type listener struct {
	net.Listener
	pace   Pace
	slots  chan struct{}
	once   sync.Once
	closed chan struct{}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case l.slots <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.slots
		return nil, err
	}
	limited := &conn{Conn: c, pace: l.pace, free: sync.OnceFunc(func() { <-l.slots })}
	limited.deadline.set = c.SetWriteDeadline
	return limited, nil
}

// Close stops listening and wakes whoever waits in Accept. Connections stay open.
func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

type conn struct {
	net.Conn
	pace     Pace
	deadline deadline
	free     func()
}

// Write goes on as long as one step is written within each grace time. One goroutine at a
// time calls it.
func (c *conn) Write(p []byte) (n int, err error) {
	if c.pace.none() {
		return c.Conn.Write(p)
	}
	for {
		if err := c.deadline.extend(time.Now().Add(c.pace.Grace)); err != nil {
			return n, err
		}
		m, err := c.Conn.Write(p[n:])
		n += m
		if m < c.pace.step() || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
	}
}

// SetWriteDeadline ends writing earlier than pace would.
func (c *conn) SetWriteDeadline(end time.Time) error { return c.deadline.limit(end) }

// SetDeadline sets this deadline and the one for reading.
func (c *conn) SetDeadline(end time.Time) error {
	return errors.Join(c.Conn.SetReadDeadline(end), c.deadline.limit(end))
}

func (c *conn) Close() error {
	defer c.free()
	return c.Conn.Close()
}

// CloseWrite lets a server end its side first, so that an early refusal reaches a caller
// who is still sending. net/http looks for it.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}
