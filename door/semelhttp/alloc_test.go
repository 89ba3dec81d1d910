//go:build !race

// With the race detector a sync.Pool drops what it is given at random, and no number of
// allocations can be held to.

package semelhttp_test

import (
	"math"
	"net/http"
	"net/url"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelhttp"
)

// TestAllocations bounds what a guarded request allocates, with the handler's own.
func TestAllocations(t *testing.T) {
	e := newEngine(t, nil)
	guarded := newGuard(t, e, nil).Handler(semelhttp.Route{Operation: semel.Operation{Name: "op"}}, benchHandler())
	key := make([]string, 1)
	body := new(rewinder)
	r := &http.Request{
		Method: "POST", URL: &url.URL{Path: "/charges"}, RequestURI: "/charges", Body: body, ContentLength: int64(len(benchBody)),
		Header:     http.Header{"Idempotency-Key": key, "Content-Type": {"application/json"}, "Authorization": {"Bearer x"}},
		RemoteAddr: "192.0.2.1:4711",
	}
	w := &plainWriter{header: http.Header{}}
	keys := benchKeys(2000)
	count := func(h http.Handler, next func() string) float64 {
		least := math.Inf(1) // of three, because the goroutines of tests before this one may allocate too
		for range 3 {
			least = min(least, testing.AllocsPerRun(500, func() {
				body.Reset(benchBody)
				key[0] = next()
				clear(w.header)
				h.ServeHTTP(w, r)
			}))
		}
		return least
	}
	i := 0
	fresh := func() string { i++; return keys[i] }
	bare := count(benchHandler(), func() string { return "k" })
	first := count(guarded, fresh)
	replay := count(guarded, func() string { return keys[1] })
	t.Logf("bare %.0f, first %.0f, replay %.0f", bare, first, replay)
	if first > 16 {
		t.Errorf("a first execution has %.0f allocations, the bare handler %.0f", first, bare)
	}
	if w.header.Get("Idempotency-Replayed") != "true" || replay > 5 {
		t.Errorf("a replay has %.0f allocations, the bare handler %.0f", replay, bare)
	}
}
