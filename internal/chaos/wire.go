//go:build linux

package chaos

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"time"
)

// wire sends each request exactly once: net/http would resend a POST with an idempotency
// key if a reused connection breaks, and the rig couldn't log that. It can't where a
// request has a body that it doesn't know how to get again.
type wire struct{ transport *http.Transport }

// dialTime bounds connecting.
const dialTime = 2 * time.Second

func newWire() *wire {
	dialer := &net.Dialer{Timeout: dialTime}
	return &wire{&http.Transport{DialContext: dialer.DialContext, DisableCompression: true, MaxIdleConnsPerHost: maxUnderWay}}
}

// reply is an answer that arrived whole.
type reply struct {
	status int
	header http.Header
	body   []byte
}

// send sends a request and returns the whole answer, or an error if not all of it
// arrived in time. Then it closes the connection, like a client that hangs up.
func (w *wire) send(addr string, r *http.Request, body []byte, limit time.Duration) (rep *reply, err error) {
	ctx, cancel := context.WithTimeout(r.Context(), limit)
	defer cancel()
	r = r.Clone(ctx)
	r.Host, r.URL.Host = r.URL.Host, addr
	if len(body) > 0 {
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	}
	defer func() {
		if err != nil {
			// What broke this connection may have broken all that are idle, and whoever
			// tries again would meet one of them after the other.
			w.close()
		}
	}()
	resp, err := w.transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return &reply{resp.StatusCode, resp.Header, data}, err
}

// close ends all connections that are not in use.
func (w *wire) close() { w.transport.CloseIdleConnections() }
