package limit

import (
	"errors"
	"fmt"
	"net"
	"sync"
)

// Listener accepts from l, but no more than so many connections at one time. At
// the limit Accept waits until one is closed; the system keeps the next callers
// waiting and refuses those beyond its own queue. Put it below TLS.
func Listener(l net.Listener, limit int) (net.Listener, error) {
	if limit <= 0 {
		return nil, fmt.Errorf("limit: a listener for %d connections", limit)
	}
	return &listener{Listener: l, slots: make(chan struct{}, limit), closed: make(chan struct{})}, nil
}

type listener struct {
	net.Listener
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
	return &conn{Conn: c, free: sync.OnceFunc(func() { <-l.slots })}, nil
}

// Close stops listening and wakes who waits in Accept. Connections live on.
func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

type conn struct {
	net.Conn
	free func()
}

func (c *conn) Close() error {
	defer c.free()
	return c.Conn.Close()
}

// CloseWrite lets a server end its side first, so that an early refusal reaches a
// caller that is still sending. net/http looks for it.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}
