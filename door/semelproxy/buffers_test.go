package semelproxy

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/door/semelhttp/semelhttptest"
	"github.com/semelhq/semel/internal/rig/turns"
)

// BenchmarkBuffers shows what it is worth to use the buffers for answers again.
func BenchmarkBuffers(b *testing.B) {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"id":"ch_1"}`)
	}))
	b.Cleanup(upstream.Close)
	target, err := url.Parse(upstream.URL)
	if err != nil {
		b.Fatal(err)
	}
	turns.Worth(b, 16, payments(b, target, new(buffers)), payments(b, target, nil))
}

// payments sends payments with new keys through a proxy that takes its buffers from a pool.
func payments(b *testing.B, upstream *url.URL, pool httputil.BufferPool) func(n int64) {
	b.Helper()
	s := semelhttptest.New(b, nil)
	p, err := New(s.Guard, Options{Upstream: upstream, Route: semelhttp.Route{Operation: semel.Operation{Name: "pay"}}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(p.Close)
	p.reverse.BufferPool = pool
	return func(n int64) {
		if w := s.Post(p, "order-"+strconv.FormatInt(n, 10), `{"amount":1250}`); w.Code != http.StatusCreated {
			b.Error(w.Code, w.Body)
		}
	}
}
