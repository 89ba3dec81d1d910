package webhook_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/dispatch"
	"github.com/semelhq/semel/door/webhook"
	"github.com/semelhq/semel/store/memstore"
)

// TestEventsOfOneOrderAreHandledInOrder: an event that fails once holds up the one behind it,
// and none of another customer.
func TestEventsOfOneOrderAreHandledInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine, err := semel.New(memstore.New(), nil)
		if err != nil {
			t.Fatal(err)
		}
		source, err := webhook.Builtin("github")
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var tried []string
		failed := false
		r, err := webhook.New(engine, webhook.Options{
			VerifierOptions: webhook.VerifierOptions{Source: source, Secrets: []string{stormSecret}}, Order: "{body:customer}",
			Handle: func(_ context.Context, e *webhook.Event) error {
				mu.Lock()
				defer mu.Unlock()
				tried = append(tried, string(e.Body))
				if !failed && string(e.Body) == `{"customer":"a","n":1}` {
					failed = true
					return errors.New("not yet")
				}
				return nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		d, err := dispatch.New(engine, dispatch.Options{Destinations: map[string]dispatch.Destination{r.Destination(): {
			Sender: dispatch.SenderFunc(func(ctx context.Context, d dispatch.Delivery) error { return r.Work(ctx, d.Message.Payload) }),
		}}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		events := []string{`{"customer":"a","n":1}`, `{"customer":"a","n":2}`, `{"customer":"b","n":3}`, `{"n":4}`}
		for i, body := range events {
			sent := &webhook.Delivery{Header: http.Header{"X-Github-Delivery": {strings.Repeat("d", i+1)}, "X-Github-Event": {"push"}, "Content-Type": {"application/json"}}, Body: []byte(body)}
			if err := source.Sign(sent, stormSecret, "", time.Now()); err != nil {
				t.Fatal(err)
			}
			req := httptest.NewRequest(http.MethodPost, "/hook", bytes.NewReader(sent.Body))
			req.Header = sent.Header
			w := httptest.NewRecorder()
			if r.ServeHTTP(w, req); w.Code != http.StatusOK {
				t.Fatalf("%d %s", w.Code, w.Body)
			}
			<-time.After(time.Millisecond) // by the clock of the test: each completed later
		}
		go func() { ended <- d.Run(ctx) }()
		<-time.After(10 * time.Minute)
		stop()
		<-ended
		if err := engine.Close(context.Background()); err != nil {
			t.Error(err)
		}
		ofA := slices.DeleteFunc(slices.Clone(tried), func(body string) bool { return !strings.Contains(body, `"a"`) })
		if want := []string{events[0], events[0], events[1]}; !slices.Equal(ofA, want) {
			t.Errorf("of one customer %q, want %q", ofA, want)
		}
		if at := slices.Index(tried, events[1]); len(tried) != 5 || at < slices.Index(tried, events[2]) || at < slices.Index(tried, events[3]) {
			t.Errorf("an event without that order waited: %q", tried)
		}
	})
}
