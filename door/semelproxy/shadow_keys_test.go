package semelproxy

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/store/memstore"
)

// TestShadowFindsKeysInBodies: the mode reads what it needs and passes all of it on, counts
// the keys by where they were, and says once a day what it has seen.
func TestShadowFindsKeysInBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var summaries []string
		events := &semel.Events{Answered: func(e semel.Delivered) {
			text := fmt.Sprint(e.Attrs)
			if strings.Contains(text, "would=") {
				summaries = append(summaries, text)
			}
		}}
		engine, err := semel.New(memstore.New(), &semel.Options{Events: events})
		if err != nil {
			t.Fatal(err)
		}
		defer engine.Close(t.Context())
		guard, err := semelhttp.New(engine, &semelhttp.Options{Identity: func(*http.Request) (string, string, error) { return "acme", "shop", nil }})
		if err != nil {
			t.Fatal(err)
		}
		inspector, err := guard.Inspect(semelhttp.Route{Operation: semel.Operation{Name: "pay"}, KeyFrom: []string{"header:Idempotency-Key", "json:/id"}, Key: semelhttp.KeyOptional})
		if err != nil {
			t.Fatal(err)
		}
		s := newShadow(guard.Engine().Internal(), inspector, ShadowOptions{MaxBody: 100})
		send := func(body, key string) {
			t.Helper()
			r := httptest.NewRequest("POST", "/pay", strings.NewReader(body))
			r.Header.Set("Content-Type", "application/json")
			if key != "" {
				r.Header.Set("Idempotency-Key", key)
			}
			passed := ""
			s.serve(httptest.NewRecorder(), r, func(w http.ResponseWriter, r *http.Request) {
				text, _ := io.ReadAll(r.Body)
				passed = string(text)
				w.WriteHeader(201)
			})
			if passed != body {
				t.Errorf("the upstream got %q of %q", passed, body)
			}
		}
		send(`{"id":"k1"}`, "")
		send(`{"id":"k1"}`, "")
		send(`{"id":"k1","x":1}`, "")
		send(`{"id":"k1"}`, "k1")
		send(`{"id":"k1"}`, "k2")                               // they differ
		send(`{}`, "")                                          // no key: it would pass
		send(`{"id":"k2","pad":"`+strings.Repeat("x", 200), "") // too large to look into
		want := ShadowCounts{Execute: 1, Replay: 2, Conflict: 1, Refuse: 1, Unknown: 1}
		keys := map[string]int64{"header:Idempotency-Key": 1, "json:/id": 3}
		if s.counts() != want || !maps.Equal(s.keys, keys) || len(summaries) != 0 {
			t.Errorf("%+v and %v, want %+v and %v; %v", s.counts(), s.keys, want, keys, summaries)
		}
		<-time.After(summaryEvery)
		send(`{"id":"k9"}`, "")
		send(`{"id":"k9"}`, "")
		if len(summaries) != 1 || !strings.Contains(summaries[0], "json:/id") {
			t.Errorf("summaries after a day: %v", summaries)
		}
	})
}
