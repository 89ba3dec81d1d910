package agents

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelproxy"
	"github.com/semelhq/semel/internal/rig/turns"
	"github.com/semelhq/semel/store/memstore"
	"github.com/semelhq/semel/store/pebblestore"
)

// plain is a server whose tools cost nothing. Those that stream end when release is closed.
func plain(b *testing.B, release chan struct{}) string {
	return listen(b, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if release != nil {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":1,\"progress\":1}}\n\n")
			_ = http.NewResponseController(w).Flush()
			<-release
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"done"}]}}`)
	}))
}

// before makes what stands before a server: nothing but a reverse proxy, or the gateway on a store.
func before(b *testing.B, upstream string, st semel.Store, err error) string {
	u := urlOf(b, upstream+"/mcp")
	bare := httputil.NewSingleHostReverseProxy(urlOf(b, upstream))
	bare.Transport = &http.Transport{MaxIdleConnsPerHost: 100}
	var h http.Handler = bare
	if err != nil {
		b.Fatal(err)
	}
	if st != nil {
		engine, err := semel.New(st, nil)
		if err != nil {
			b.Fatal(err)
		}
		g, err := gateway(engine, u)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() {
			g.Close()
			_ = engine.Close(context.WithoutCancel(b.Context()))
			_ = st.Close()
		})
		h = g
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	srv := &http.Server{Handler: h}
	go func() { _ = srv.Serve(semelproxy.Strict(srv, l)) }()
	b.Cleanup(func() { _ = srv.Close() })
	return "http://" + l.Addr().String()
}

// post calls a tool as clients of 2025-11-25 do.
func post(ctx context.Context, client *http.Client, at, tool, order string) (*http.Response, error) {
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":{"order_id":%q},"_meta":{"progressToken":1}}}`, tool, order)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, at+"/mcp", strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	r.Header.Set("Mcp-Protocol-Version", "2025-11-25")
	return client.Do(r)
}

// BenchmarkCall calls tools through a bare reverse proxy and through the gateway in turns: known by
// a field, and by the echo window, which writes once more before the call and once after it.
func BenchmarkCall(b *testing.B) {
	upstream := plain(b, nil)
	durable, err := pebblestore.Open(b.TempDir(), nil)
	ends := []struct{ name, at string }{
		{"bare", before(b, upstream, nil, nil)},
		{"memory", before(b, upstream, memstore.New(), nil)},
		{"embedded", before(b, upstream, durable, err)},
	}
	for _, callers := range []int{1, 32} {
		for tool, name := range map[string]string{"refund": "field", "pay": "echo"} {
			b.Run(fmt.Sprintf("%s/%d", name, callers), func(b *testing.B) {
				client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: callers}}
				defer client.CloseIdleConnections()
				var loads []turns.Load
				for _, end := range ends {
					loads = append(loads, turns.Load{Name: end.name, Callers: callers, Step: func(ctx context.Context, c *turns.Caller) error {
						resp, err := post(ctx, client, end.at, tool, c.Key())
						if err != nil {
							return err
						}
						defer resp.Body.Close()
						text, err := io.ReadAll(resp.Body)
						if err == nil && !strings.Contains(string(text), "done") {
							err = fmt.Errorf("%s", text)
						}
						return err
					}})
				}
				turns.Compare(b, loads...)
			})
		}
	}
}

// BenchmarkOpenStreams measures how much memory a stream takes that is open, with its client and
// its server, which are in this process, too: a bare reverse proxy says how much those take.
func BenchmarkOpenStreams(b *testing.B) {
	for _, name := range []string{"bare", "memory", "embedded"} {
		b.Run(name, func(b *testing.B) {
			release := make(chan struct{})
			var st semel.Store
			var err error
			switch name {
			case "memory":
				st = memstore.New()
			case "embedded":
				st, err = pebblestore.Open(b.TempDir(), nil)
			}
			at := before(b, plain(b, release), st, err)
			client := &http.Client{Transport: &http.Transport{}}
			defer client.CloseIdleConnections()
			const streams = 500
			was, open := memory(), 0
			for b.Loop() {
				open += streams
				var all sync.WaitGroup
				for n := range streams {
					all.Go(func() {
						resp, err := post(b.Context(), client, at, "refund", fmt.Sprint(open, "-", n))
						if err == nil {
							_, err = io.ReadFull(resp.Body, make([]byte, 10))
						}
						if err != nil {
							b.Error(err)
						}
					})
				}
				all.Wait()
				b.ReportMetric(float64(memory()-was)/float64(open), "B/stream")
			}
			close(release)
		})
	}
}

// memory is what the process uses, on the heap and on stacks.
func memory() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
