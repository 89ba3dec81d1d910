package activitypub_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/door/activitypub"
	"github.com/semelhq/semel/store/memstore"
)

// BenchmarkInbox is one delivery to an inbox on the memory store, without a connection or
// a signature: a new activity, and one that is in the store.
func BenchmarkInbox(b *testing.B) {
	fresh := func(i int) string { return fmt.Sprintf("new-%d", i) }
	known := func(int) string { return "known" }
	for _, c := range []struct {
		name, message string
		id            func(i int) string
	}{{"first", "queued", fresh}, {"duplicate", "already", known}} {
		b.Run(c.name, func(b *testing.B) {
			inbox := newBenchInbox(b)
			if rec := deliver(inbox, known(0)); rec.Code != http.StatusAccepted {
				b.Fatal(rec.Code, rec.Body)
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if rec := deliver(inbox, c.id(i)); rec.Code != http.StatusAccepted || !strings.Contains(rec.Body.String(), c.message) {
					b.Fatal(rec.Code, rec.Body)
				}
			}
		})
	}
}

func newBenchInbox(b *testing.B) *activitypub.Inbox {
	engine, err := semel.New(memstore.New(), &semel.Options{Events: door.Log(slog.New(slog.NewJSONHandler(io.Discard, nil)), slog.LevelInfo)})
	if err != nil {
		b.Fatal(err)
	}
	inbox, err := activitypub.New(engine, activitypub.Options{
		Actors: "https://here.example/actors/{actor}", Budget: budget,
		Exists:   func(context.Context, string) (bool, error) { return true, nil },
		Policies: activitypub.Policies{{Host: "*", Unsigned: true}},
		Handle:   func(context.Context, *activitypub.Activity) error { return nil },
	})
	if err != nil {
		b.Fatal(err)
	}
	return inbox
}

func deliver(inbox *activitypub.Inbox, id string) *httptest.ResponseRecorder {
	body := `{"type":"Offer","id":"https://there.example/a/` + id + `","actor":"` + bob + `","to":"` + alice +
		`","object":{"type":"Note","content":"` + strings.Repeat("x", 800) + `"}}`
	r := httptest.NewRequest("POST", "https://here.example/actors/alice/inbox/", strings.NewReader(body))
	r.Header.Set("Content-Type", activityJSON)
	rec := httptest.NewRecorder()
	inbox.ServeHTTP(rec, r)
	return rec
}
