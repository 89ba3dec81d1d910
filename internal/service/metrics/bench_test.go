package metrics_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/door/semelproxy"
	"github.com/semelhq/semel/internal/rig/turns"
	"github.com/semelhq/semel/internal/service/figures"
	"github.com/semelhq/semel/internal/service/metrics"
	"github.com/semelhq/semel/store/memstore"
)

const callers = 16

// BenchmarkProxy lets a proxy that is observed take turns with one that isn't. Its cpu-ratio is
// the deliveries with metrics and figures for a second of processor time as a share of those
// without, which other processes hardly move; its ratio is that of the throughput. Callers and
// the upstream are in this process, on loopback. Run it with
// -benchtime 100x -turns.length 50ms.
func BenchmarkProxy(b *testing.B) {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"id":"ch_1"}`)
	}))
	b.Cleanup(upstream.Close)
	target, err := url.Parse(upstream.URL)
	if err != nil {
		b.Fatal(err)
	}
	st := memstore.New()
	m := metrics.New(func(metrics.Set) {})
	f := figures.New(st, &figures.Options{Crowded: m.Crowded})
	ctx, cancel := context.WithCancel(b.Context())
	b.Cleanup(cancel)
	go f.Run(ctx)
	events := m.Events()
	decided, ended, answered := events.Decided, events.Ended, events.Answered
	more := f.Events()
	events.Decided = func(e semel.Decided) { decided(e); more.Decided(e) }
	events.Ended = func(e semel.Ended) { ended(e); more.Ended(e) }
	events.Answered = func(e semel.Delivered) { answered(e); more.Answered(e) }
	turns.Worth(b, callers, proxied(b, target, m.Store(st), events), proxied(b, target, memstore.New(), unobserved))
}

// unobserved has functions where the service has some for its log: with them, doors and the
// engine tell what happens.
var unobserved = &semel.Events{Decided: func(semel.Decided) {}, Ended: func(semel.Ended) {}, Answered: func(semel.Delivered) {}}

// proxied sends payments through a proxy, each of them twice.
func proxied(b *testing.B, upstream *url.URL, st semel.Store, events *semel.Events) func(n int64) {
	b.Helper()
	engine, err := semel.New(st, &semel.Options{Events: events})
	if err != nil {
		b.Fatal(err)
	}
	guard, err := semelhttp.New(engine, nil)
	if err != nil {
		b.Fatal(err)
	}
	p, err := semelproxy.New(guard, semelproxy.Options{Upstream: upstream, Route: semelhttp.Route{Operation: semel.Operation{Name: "pay"}}})
	if err != nil {
		b.Fatal(err)
	}
	front := httptest.NewServer(p)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: callers}}
	b.Cleanup(func() {
		client.CloseIdleConnections()
		front.Close()
		p.Close()
		engine.Close(context.Background())
	})
	return func(n int64) {
		for range 2 {
			r, err := http.NewRequest("POST", front.URL+"/pay", strings.NewReader(`{"amount":1250}`))
			if err != nil {
				b.Error(err)
				return
			}
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Authorization", "Bearer a-credential")
			r.Header.Set("Idempotency-Key", "order-"+strconv.FormatInt(n, 10))
			resp, err := client.Do(r)
			if err != nil {
				b.Error(err)
				return
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			if resp.Body.Close(); resp.StatusCode != http.StatusCreated {
				b.Error(resp.Status)
			}
		}
	}
}
