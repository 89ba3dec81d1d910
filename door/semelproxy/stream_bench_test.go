package semelproxy_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/door/semelproxy"
	"github.com/semelhq/semel/store/memstore"
	"github.com/semelhq/semel/store/pebblestore"
)

// BenchmarkStream passes an event stream through a bare reverse proxy, and through a guarded one
// that records it: 2,000 events as fast as they come, or 100 of them a millisecond apart. It
// reports the time to the first byte of the body.
func BenchmarkStream(b *testing.B) {
	event := "data: " + strings.Repeat("x", 500) + "\n\n"
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		n, pause := 2000, time.Duration(0)
		if r.URL.Path == "/paced" {
			n, pause = 100, time.Millisecond
		}
		tick := time.NewTimer(0)
		for range n {
			_, _ = io.WriteString(w, event)
			_ = http.NewResponseController(w).Flush()
			if pause > 0 {
				<-tick.C
				tick.Reset(pause)
			}
		}
	}))
	defer up.Close()
	upstream, _ := url.Parse(up.URL)
	guarded := func(st semel.Store, err error) http.Handler {
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = st.Close() })
		engine, err := semel.New(st, nil)
		if err != nil {
			b.Fatal(err)
		}
		guard, err := semelhttp.New(engine, nil)
		if err != nil {
			b.Fatal(err)
		}
		p, err := semelproxy.New(guard, semelproxy.Options{Upstream: upstream, Route: semelhttp.Route{Operation: semel.Operation{Name: "op"}}})
		if err != nil {
			b.Fatal(err)
		}
		return p
	}
	keys := 0
	for _, path := range []string{"/fast", "/paced"} {
		for _, c := range []struct {
			name string
			h    func() http.Handler
		}{
			{"bare", func() http.Handler { return httputil.NewSingleHostReverseProxy(upstream) }},
			{"memory", func() http.Handler { return guarded(memstore.New(), nil) }},
			{"pebble", func() http.Handler { st, err := pebblestore.Open(b.TempDir(), nil); return guarded(st, err) }},
		} {
			b.Run(path[1:]+"/"+c.name, func(b *testing.B) {
				srv := httptest.NewServer(c.h())
				defer srv.Close()
				var first time.Duration
				for b.Loop() {
					keys++
					r, _ := http.NewRequestWithContext(b.Context(), "POST", srv.URL+path, nil)
					r.Header.Set("Idempotency-Key", fmt.Sprint("key-", keys))
					began := time.Now()
					resp, err := srv.Client().Do(r)
					if err != nil {
						b.Fatal(err)
					}
					var one [1]byte
					_, _ = io.ReadFull(resp.Body, one[:])
					first += time.Since(began)
					n, _ := io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
					b.SetBytes(n + 1)
				}
				b.ReportMetric(float64(first.Microseconds())/float64(b.N), "µs/first-byte")
			})
		}
	}
}

// BenchmarkOpenStreams reports the memory that each of 500 open streams takes, of clients, upstream
// and proxy together: with a bare reverse proxy, with a guarded one, and with a duplicate that has
// joined each.
func BenchmarkOpenStreams(b *testing.B) {
	const n = 500
	for _, kind := range []string{"bare", "first", "joined"} {
		b.Run(kind, func(b *testing.B) {
			release := make(chan struct{})
			up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, "data: "+strings.Repeat("x", 500)+"\n\n")
				_ = http.NewResponseController(w).Flush()
				<-release
			}))
			defer up.Close()
			upstream, _ := url.Parse(up.URL)
			h := http.Handler(httputil.NewSingleHostReverseProxy(upstream))
			if kind != "bare" {
				st := memstore.New()
				defer st.Close()
				engine, err := semel.New(st, nil)
				if err != nil {
					b.Fatal(err)
				}
				guard, err := semelhttp.New(engine, nil)
				if err != nil {
					b.Fatal(err)
				}
				if h, err = semelproxy.New(guard, semelproxy.Options{Upstream: upstream, Route: semelhttp.Route{Operation: semel.Operation{Name: "op"}}}); err != nil {
					b.Fatal(err)
				}
			}
			srv := httptest.NewServer(h)
			defer srv.Close()
			open := func(i int) {
				r, _ := http.NewRequestWithContext(b.Context(), "POST", srv.URL, nil)
				r.Header.Set("Idempotency-Key", fmt.Sprint("key-", i))
				resp, err := srv.Client().Do(r)
				if err != nil {
					b.Fatal(err)
				}
				b.Cleanup(func() { _ = resp.Body.Close() })
				var one [1]byte
				_, _ = io.ReadFull(resp.Body, one[:])
			}
			if kind == "joined" {
				for i := range n {
					open(i)
				}
			}
			before := inUse()
			for i := range n {
				open(i)
			}
			b.ReportMetric(float64(inUse()-before)/n, "B/stream")
			b.ReportMetric(0, "ns/op")
			close(release)
		})
	}
}

// inUse is the memory in use, of the heap and of stacks.
func inUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
