package semelproxy

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/semelhq/semel/door/semelhttp"
)

// Delivery follows an answer to its client, on a connection of a server behind [Strict]. That a
// write succeeded proves nothing. An answer has arrived if the client went on after its last byte:
// it sent another request on the connection, or closed it in the usual way after it had
// acknowledged everything (which only Linux tells). A reset, an end before the last byte and a
// failed write are losses; silence proves nothing.
//
// Where requests of several clients share a connection, or overtake answers, another request
// proves nothing: behind a proxy, by the headers that proxies set, and over HTTP/2.
type Delivery struct {
	tell func(arrived bool)
	conn *strictConn // nil: nobody sees the connection
	next bool        // another request proves it
	at   int         // see the stages
	over bool        // the client has ended its side
	stop func() bool // of what watches the request

	request context.Context
}

// The stages of an answer.
const (
	underWay = iota
	ending   // its last bytes are being written
	written
)

// Follow begins to follow the answer to a request. tell is called once at most, as soon as
// something is known, and must return at once. Without [Strict] that is only the client's leaving
// before the last byte.
func Follow(r *http.Request, tell func(arrived bool)) *Delivery {
	var once sync.Once
	d := &Delivery{request: r.Context(), next: r.ProtoMajor < 2 && !semelhttp.Forwarded(r.Header)}
	d.tell = func(arrived bool) { once.Do(func() { tell(arrived) }) }
	d.stop = context.AfterFunc(r.Context(), func() { d.tell(false) }) // also if that was before
	if c, ok := r.Context().Value(strictKey{}).(*strictConn); ok {
		d.conn = c
		c.heard.add(d)
	}
	return d
}

// Gone reports whether the client has left, as far as its connection shows by now.
func (d *Delivery) Gone() bool {
	if d.conn != nil && d.conn.gone() {
		d.tell(false)
		return true
	}
	return d.request.Err() != nil
}

// Ending says that the last bytes of the answer are about to be written. Don't flush them: the end
// of a chunked answer then leaves with them, and a client that closes the connection as soon as it
// has the response leaves nothing unread, which would look like a loss.
func (d *Delivery) Ending() {
	d.stop()
	if d.conn != nil {
		d.conn.heard.settle(func(other *Delivery) (arrived, known bool) {
			if other == d {
				d.at = ending
			}
			return false, false
		})
	}
}

// Reached reports whether the client's system has the whole answer, and keeps its connection open
// (only Linux tells). A client that has several doesn't go on by the same one, and one that gives up
// on an answer closes its connection. Behind a proxy, only the proxy has it.
func (d *Delivery) Reached() bool {
	if d.conn == nil || !d.next {
		return false
	}
	d.conn.heard.mu.Lock()
	open := d.at == written && !d.over
	d.conn.heard.mu.Unlock()
	return open && !d.conn.gone() && d.conn.acknowledged()
}

// sent says that the server has written all of an answer: it waits for the next request, or ends the
// connection.
func (c *strictConn) sent() {
	c.heard.settle(func(d *Delivery) (arrived, known bool) {
		if d.at == ending {
			d.at = written
		}
		known = d.over && d.at == written
		return known && c.acknowledged(), known
	})
}

// heard has the answers on a connection that may or may not have arrived.
type heard struct {
	waiting atomic.Int64 // how many there are
	ended   atomic.Bool  // the server has ended its side, or is about to
	mu      sync.Mutex
	list    []*Delivery
}

// add follows another answer. The request for it came after every answer that was sent.
func (h *heard) add(d *Delivery) {
	h.settle(func(earlier *Delivery) (arrived, known bool) {
		return true, earlier.at == written && earlier.next && d.next
	})
	h.mu.Lock()
	defer h.mu.Unlock()
	h.list = append(h.list, d)
	h.waiting.Store(int64(len(h.list)))
}

// settle tells of the answers that the rule knows about, and forgets them.
func (h *heard) settle(rule func(d *Delivery) (arrived, known bool)) {
	if h.waiting.Load() == 0 {
		return
	}
	var tell []func()
	h.mu.Lock()
	h.list = slices.DeleteFunc(h.list, func(d *Delivery) bool {
		arrived, known := rule(d)
		if known {
			tell = append(tell, func() { d.tell(arrived) })
		}
		return known
	})
	h.waiting.Store(int64(len(h.list)))
	h.mu.Unlock()
	for _, f := range tell {
		f()
	}
}

// read takes note of what came from the client.
func (c *strictConn) read(n int, err error) {
	if n > 0 {
		c.heard.settle(func(d *Delivery) (arrived, known bool) { return true, d.at == written && d.next })
	}
	switch {
	case err == nil, errors.Is(err, os.ErrDeadlineExceeded): // of the server, which goes on
	case errors.Is(err, io.EOF) && c.orderly():
		c.heard.settle(func(d *Delivery) (arrived, known bool) {
			d.over = true
			return d.at == written && c.acknowledged(), d.at != ending
		})
	default:
		c.lost()
	}
}

// orderly reports whether the client's end of TLS is followed by that of the connection, and not
// by a reset, which unread bytes cause. A client that keeps the connection open for longer than
// this has said nothing of them.
func (c *strictConn) orderly() bool {
	t, secure := c.Conn.(*tls.Conn)
	if !secure || c.heard.waiting.Load() == 0 {
		return true
	}
	_ = t.NetConn().SetReadDeadline(time.Now().Add(lingering))
	n, err := t.NetConn().Read(make([]byte, 1))
	return n == 0 && errors.Is(err, io.EOF)
}

// lingering is how long a client has to end a connection that the server ends.
const lingering = time.Second

// linger ends a connection in place of the server, which closes it after an answer if the client
// speaks HTTP/1.0, as many proxies do, or has asked for it. A client that has read the answer ends
// its side in the usual way. Over TLS the server doesn't end its own first: what arrives at a client
// that has closed would be answered by a reset.
func (c *strictConn) linger() {
	over := time.AfterFunc(lingering, func() { _ = c.Close() }) // the server may still set a deadline
	defer over.Stop()
	c.sent()
	if _, secure := c.Conn.(*tls.Conn); !secure {
		_ = c.CloseWrite()
	}
	rest := make([]byte, 512)
	for c.heard.waiting.Load() > 0 {
		if n, err := c.Conn.Read(rest); err != nil {
			c.read(n, err)
			break
		}
	}
	_ = c.Close()
}

// lost says that nothing more comes from the client.
func (c *strictConn) lost() {
	c.heard.settle(func(*Delivery) (arrived, known bool) { return false, true })
}
