package semelproxy

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/worth"
	"github.com/semelhq/semel/store/memstore"
	"github.com/semelhq/semel/transport/semelhttp"
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
	worth.Show(b, 16, payments(b, upstream.URL, new(buffers)), payments(b, upstream.URL, nil))
}

// payments sends payments with new keys through a proxy that has a pool of buffers.
func payments(b *testing.B, upstream string, pool *buffers) func(n int64) {
	b.Helper()
	target, err := url.Parse(upstream)
	if err != nil {
		b.Fatal(err)
	}
	engine, err := semel.New(memstore.New(), nil)
	if err != nil {
		b.Fatal(err)
	}
	guard, err := semelhttp.New(engine, &semelhttp.Options{TempDir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	p, err := New(guard, Options{Upstream: target, Route: semelhttp.Route{Operation: semel.Operation{Name: "pay"}}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(p.Close)
	if pool == nil {
		p.reverse.BufferPool = nil
	}
	return func(n int64) {
		r := httptest.NewRequestWithContext(b.Context(), http.MethodPost, "/payments", strings.NewReader(`{"amount":1250}`))
		r.Header.Set("Authorization", "Bearer alice")
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Idempotency-Key", "order-"+strconv.FormatInt(n, 10))
		w := httptest.NewRecorder()
		if p.ServeHTTP(w, r); w.Code != http.StatusCreated {
			b.Error(w.Code, w.Body)
		}
	}
}
