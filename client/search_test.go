package client_test

import (
	"net/http"
	"testing"

	"pgregory.net/rapid"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/lookup"
	"github.com/semelhq/semel/internal/peer"
	"github.com/semelhq/semel/internal/service/query"
	"github.com/semelhq/semel/store"
)

// TestEveryQueryCanBeSent sends queries, and holds what the service reads against them on
// records that differ in what queries look at.
func TestEveryQueryCanBeSent(t *testing.T) {
	var got store.Query
	var parsed error
	c := newClient(t, direct{http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		peer.Mark(w.Header(), peer.Data)
		got, parsed = query.Parse(r.URL.Query().Get("q"))
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"records":[]}`))
	})})
	texts := []string{"a", "a*", `a "b)`, "OR", "(", "-x"}
	var records []store.Record
	for _, key := range texts {
		for _, order := range texts {
			records = append(records,
				store.Record{ID: store.ID{Tenant: "acme", Operation: order, Key: key}, State: store.Failed, Disposition: semel.DispositionRejected, Attributes: store.Attributes{"order": order}},
				store.Record{ID: store.ID{Principal: key, Operation: "op", Key: order}, State: store.Processing, Held: true, Attributes: store.Attributes{"request_id": key}})
		}
	}
	text := rapid.SampledFrom(append([]string{""}, texts...))
	var some func(t *rapid.T, depth int) store.Query
	some = func(t *rapid.T, depth int) (q store.Query) {
		if word := text.Draw(t, "word"); word != "" && rapid.Bool().Draw(t, "named") {
			q = lookup.Named(word)
		}
		q.Key, q.KeyPrefix, q.OperationPrefix, q.PrincipalPrefix = text.Draw(t, "key"), text.Draw(t, "prefix"), text.Draw(t, "operation"), text.Draw(t, "principal")
		q.Held = rapid.Bool().Draw(t, "held")
		q.Unverified = rapid.Bool().Draw(t, "unverified")
		q.State = rapid.SampledFrom([]store.State{0, store.Processing, store.Failed}).Draw(t, "state")
		q.Disposition = rapid.SampledFrom([]store.Disposition{0, semel.DispositionRejected}).Draw(t, "disposition")
		if order := text.Draw(t, "order"); order != "" {
			q.AttributePrefixes = store.Attributes{"order": order}
		}
		if depth < 3 {
			for range rapid.IntRange(0, 2).Draw(t, "lists") {
				var list []store.Query
				for range rapid.IntRange(1, 3).Draw(t, "alternatives") {
					list = append(list, some(t, depth+1))
				}
				q.Any = append(q.Any, list)
			}
			for range rapid.IntRange(0, 1).Draw(t, "without") {
				q.Not = append(q.Not, some(t, depth+1))
			}
		}
		return q
	}
	rapid.Check(t, func(t *rapid.T) {
		q := some(t, 0)
		if _, err := c.Search(t.Context(), q); err != nil || parsed != nil {
			t.Fatalf("%v, %v", err, parsed)
		}
		for i := range records {
			if rec := &records[i]; q.Matches(rec) != got.Matches(rec) {
				t.Fatalf("%+v is read as %+v, which differs for %+v", q, got, rec.ID)
			}
		}
	})
}
