//go:build linux

package chaos

import (
	"bufio"
	"bytes"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// wire sends each request exactly once. The client of net/http would resend a POST with an
// idempotency key if a reused connection breaks, and the rig couldn't log that.
type wire struct {
	mu   sync.Mutex
	idle map[string][]*conn // by address
}

// conn is a connection that carries one request at a time.
type conn struct {
	net.Conn
	r *bufio.Reader
}

// reply is an answer that arrived whole.
type reply struct {
	status int
	header http.Header
	body   []byte
}

// dialTime bounds connecting.
const dialTime = 2 * time.Second

// post sends a request and returns the whole answer, or an error if not all of it
// arrived in time. Then it closes the connection, like a client that hangs up.
func (w *wire) send(addr string, r *http.Request, body []byte, limit time.Duration) (*reply, error) {
	c, err := w.take(addr)
	if err != nil {
		return nil, err
	}
	if err := c.SetDeadline(time.Now().Add(limit)); err != nil {
		return nil, err
	}
	rep, reusable, err := c.exchange(r, body)
	if err != nil {
		// What broke this connection may have broken all that are idle, and whoever
		// tries again would meet one of them after the other.
		w.forget(addr)
	}
	if err != nil || !reusable {
		_ = c.Close()
		return rep, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.idle[addr] = append(w.idle[addr], c)
	return rep, nil
}

func (w *wire) take(addr string) (*conn, error) {
	w.mu.Lock()
	if list := w.idle[addr]; len(list) > 0 {
		c := list[len(list)-1]
		w.idle[addr] = list[:len(list)-1]
		w.mu.Unlock()
		return c, nil
	}
	w.mu.Unlock()
	c, err := net.DialTimeout("tcp", addr, dialTime)
	if err != nil {
		return nil, err
	}
	return &conn{c, bufio.NewReader(c)}, nil
}

func (c *conn) exchange(r *http.Request, body []byte) (rep *reply, reusable bool, err error) {
	if len(body) > 0 {
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	}
	var head bytes.Buffer
	if err := r.Write(&head); err != nil {
		return nil, false, err
	}
	if _, err := c.Write(head.Bytes()); err != nil {
		return nil, false, err
	}
	resp, err := http.ReadResponse(c.r, r)
	if err != nil {
		return nil, false, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, false, err
	}
	return &reply{resp.StatusCode, resp.Header, data}, !resp.Close, nil
}

// forget ends the connections to an address that are not in use.
func (w *wire) forget(addr string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.idle[addr] {
		_ = c.Close()
	}
	delete(w.idle, addr)
}

// close ends all connections that are not in use.
func (w *wire) close() {
	w.mu.Lock()
	addrs := slices.Collect(maps.Keys(w.idle))
	w.mu.Unlock()
	for _, addr := range addrs {
		w.forget(addr)
	}
}
