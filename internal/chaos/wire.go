//go:build linux

package chaos

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// wire sends each request exactly once: net/http would resend a POST with an idempotency
// key if a reused connection breaks, and the rig couldn't log that. It can't where a
// request has a body that it doesn't know how to get again.
type wire struct {
	mu sync.Mutex
	to map[string]*http.Transport // by address
}

// reply is an answer that arrived whole.
type reply struct {
	status int
	header http.Header
	body   []byte
}

// dialTime bounds connecting.
const dialTime = 2 * time.Second

// send sends a request and returns the whole answer, or an error if not all of it
// arrived in time. Then it closes the connection, like a client that hangs up.
func (w *wire) send(addr string, r *http.Request, body []byte, limit time.Duration) (*reply, error) {
	ctx, cancel := context.WithTimeout(r.Context(), limit)
	defer cancel()
	r = r.Clone(ctx)
	r.Host, r.URL.Host = r.URL.Host, addr
	if len(body) > 0 {
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	}
	t := w.transport(addr)
	rep, err := exchange(t, r)
	if err != nil {
		// What broke this connection may have broken all that are idle, and whoever
		// tries again would meet one of them after the other.
		t.CloseIdleConnections()
	}
	return rep, err
}

func exchange(t *http.Transport, r *http.Request) (*reply, error) {
	resp, err := t.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	return &reply{resp.StatusCode, resp.Header, data}, nil
}

func (w *wire) transport(addr string) *http.Transport {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.to == nil {
		w.to = map[string]*http.Transport{}
	}
	if w.to[addr] == nil {
		dialer := &net.Dialer{Timeout: dialTime}
		w.to[addr] = &http.Transport{DialContext: dialer.DialContext, DisableCompression: true, MaxIdleConnsPerHost: maxUnderWay}
	}
	return w.to[addr]
}

// close ends all connections that are not in use.
func (w *wire) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range w.to {
		t.CloseIdleConnections()
	}
}
