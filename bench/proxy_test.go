package bench

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/door/semelproxy"
	"github.com/semelhq/semel/internal/rig/turns"
	"github.com/semelhq/semel/internal/service/api"
	"github.com/semelhq/semel/store/pebblestore"
)

// crowds are how many callers BenchmarkProxy has.
var crowds = []int{64, 256}

// BenchmarkProxy measures how many requests go through Semel as a reverse proxy, with a new key
// for each, and through a bare [httputil.ReverseProxy]. Clients, proxies and upstream share this
// process. The store in memory shows what the way through the program costs, and the embedded
// one adds two durable writes, for which few callers wait and many share a sync.
func BenchmarkProxy(b *testing.B) {
	for _, kind := range kinds[:2] {
		for _, callers := range crowds {
			b.Run(fmt.Sprintf("%s/callers=%d", kind.name, callers), func(b *testing.B) {
				p := kind.place(b)
				proxied(b, engineOn(b, p.store(b, "proxy"), nil), callers)
			})
		}
	}
}

func proxied(b *testing.B, e *semel.Engine, callers int) {
	guard, err := semelhttp.New(e, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := guard.Close(context.Background()); err != nil {
			b.Error(err)
		}
	})
	text := []byte(`"` + string(bytes.Repeat([]byte("x"), max(*size-2, 0))) + `"`)
	upstream := &url.URL{Scheme: "http", Host: serve(b, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(text)
	}), false)}
	proxy, err := semelproxy.New(guard, semelproxy.Options{
		Upstream:  upstream,
		Route:     semelhttp.Route{Operation: semel.Operation{Name: "bench.proxy"}},
		Transport: semelproxy.TransportOptions{MaxIdle: callers},
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(proxy.Close)
	load := func(name, addr string) turns.Load {
		conns := dial(b, addr, callers)
		return turns.Load{Name: name, Callers: callers, Step: func(_ context.Context, c *turns.Caller) error {
			head := "/charges HTTP/1.1\r\nHost: " + addr + "\r\nContent-Type: application/json\r\nIdempotency-Key: " + c.Key() + "\r\n"
			status, _, err := conns[c.Number].post(head, text)
			if err == nil && status != http.StatusCreated {
				err = fmt.Errorf("the answer is %d", status)
			}
			return err
		}}
	}
	semelAt := serve(b, proxy, true)
	mustReplay(b, semelAt)
	turns.Compare(b, load("semel", semelAt), load("bare", serve(b, bareProxy(b, upstream, callers), false)))
}

// mustReplay checks that a proxy keeps outcomes.
func mustReplay(b *testing.B, addr string) {
	b.Helper()
	for _, want := range []string{"", "true"} {
		r, err := http.NewRequestWithContext(b.Context(), http.MethodPost, "http://"+addr+"/charges", strings.NewReader("{}"))
		if err != nil {
			b.Fatal(err)
		}
		r.Header = http.Header{"Idempotency-Key": {"same"}, "Content-Type": {"application/json"}}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			b.Fatal(err)
		}
		_ = resp.Body.Close() // it was not read
		if got := resp.Header.Get("Idempotency-Replayed"); got != want || resp.StatusCode != http.StatusCreated {
			b.Fatalf("the answer is %d, replayed %q, want %q", resp.StatusCode, got, want)
		}
	}
}

// bareProxy is the reverse proxy of the standard library, tuned to be fast.
func bareProxy(b *testing.B, upstream *url.URL, callers int) http.Handler {
	transport := &http.Transport{
		MaxIdleConns: callers, MaxIdleConnsPerHost: callers,
		IdleConnTimeout: semelproxy.DefaultIdleTimeout, DisableCompression: true,
	}
	b.Cleanup(transport.CloseIdleConnections)
	return &httputil.ReverseProxy{
		Rewrite: func(pr *httputil.ProxyRequest) {
			pr.SetURL(upstream)
			pr.SetXForwarded()
		},
		Transport: transport, BufferPool: new(bufferPool), ErrorLog: log.New(io.Discard, "", 0),
	}
}

type bufferPool struct{ pool sync.Pool }

func (b *bufferPool) Get() []byte {
	if p, ok := b.pool.Get().(*[32 << 10]byte); ok {
		return p[:]
	}
	return make([]byte, 32<<10)
}

func (b *bufferPool) Put(p []byte) { b.pool.Put((*[32 << 10]byte)(p)) }

// embedded runs an engine on the embedded store until the end of the benchmark.
func embedded(b *testing.B) *semel.Engine {
	p := place{open: func(string) (semel.Store, error) { return pebblestore.Open(b.TempDir(), nil) }}
	return engineOn(b, p.store(b, ""), &semel.Options{Operations: []semel.Operation{{Name: operation}}})
}

// BenchmarkAPI measures callers who begin and complete new keys through the Go client, with
// the embedded store.
func BenchmarkAPI(b *testing.B) {
	service, err := api.New(api.Options{
		Engine:   embedded(b),
		Identify: func(*http.Request) (api.Caller, error) { return api.Caller{}, nil },
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(service.Close)
	cl, err := client.New("http://"+serve(b, service.Data(), true), &client.Options{
		Transport: &http.Transport{MaxIdleConns: *callers, MaxIdleConnsPerHost: *callers},
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := cl.Close(); err != nil {
			b.Error(err)
		}
	})
	result := semel.Result{Data: make([]byte, *size)}
	turns.Compare(b, turns.Load{Name: "pairs", Callers: *callers, Step: func(ctx context.Context, c *turns.Caller) error {
		begun, err := cl.Begin(ctx, semel.Call{Operation: operation, Key: c.Key()})
		if err == nil {
			_, err = cl.Complete(ctx, begun.Execution, result)
		}
		return err
	}})
}
