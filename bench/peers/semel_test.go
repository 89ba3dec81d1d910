package peers

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelhttp"
)

// What every handler is sent and answers.
const (
	body        = `{"amount":1250,"currency":"EUR","customer":"cus_9s6XKzkNRiz8i3","description":"Order 4711, 2 pieces"}`
	answer      = `{"id":"ch_1","status":"succeeded"}`
	credential  = "Bearer sk_test_4eC39HqLyjWDarjtT1zdp7dc"
	contentType = "application/json"
)

func engineOn(b *testing.B, store semel.Store) *semel.Engine {
	b.Helper()
	e, err := semel.New(store, &semel.Options{Operations: []semel.Operation{{Name: "payments.charge"}}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := e.Close(context.Background()); err != nil {
			b.Error(err)
		}
		if err := store.Close(); err != nil {
			b.Error(err)
		}
	})
	return e
}

// calls runs a function under a key.
func calls(b *testing.B, store semel.Store) do {
	e := engineOn(b, store)
	return func(ctx context.Context, key string, replayed bool) error {
		call := semel.Call{
			Tenant: "bench", Principal: "load", Operation: "payments.charge", Key: key,
			Fingerprint: semel.FingerprintOf(semel.SchemeRaw, []byte(body)),
		}
		ans, err := e.Do(ctx, call, func(context.Context, semel.Execution) (semel.Result, error) {
			return semel.Result{Data: []byte(answer)}, nil
		})
		if err != nil {
			return err
		}
		return check(replayed, ans.Decision == semel.Replay, string(ans.Record.Result.Data))
	}
}

// check is the error of a wrong answer.
func check(wantReplay, replayed bool, got string) error {
	if replayed != wantReplay || got != answer {
		return fmt.Errorf("replayed %t, want %t, with the answer %q", replayed, wantReplay, got)
	}
	return nil
}

// middleware sends requests to a guarded handler, without a network in between.
func middleware(b *testing.B, store semel.Store) do {
	g, err := semelhttp.New(engineOn(b, store), nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := g.Close(context.Background()); err != nil {
			b.Error(err)
		}
	})
	guarded := g.Handler(semelhttp.Route{Operation: semel.Operation{Name: "payments.charge"}}, http.HandlerFunc(charge))
	return func(ctx context.Context, key string, replayed bool) error {
		r := &http.Request{
			Method: http.MethodPost, URL: &url.URL{Path: "/charges"}, RequestURI: "/charges",
			Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)),
			Header: http.Header{"Idempotency-Key": {key}, "Content-Type": {contentType}, "Authorization": {credential}},
		}
		w := &writer{header: http.Header{}}
		guarded.ServeHTTP(w, r.WithContext(ctx))
		if w.status != http.StatusCreated {
			return fmt.Errorf("status %d: %s", w.status, w.body)
		}
		return check(replayed, w.header.Get("Idempotency-Replayed") == "true", string(w.body))
	}
}

func charge(w http.ResponseWriter, r *http.Request) {
	if got, err := io.ReadAll(r.Body); err != nil || string(got) != body {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Location", "/charges/ch_1")
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, answer)
}

// writer is the least that an http.ResponseWriter can be.
type writer struct {
	header http.Header
	status int
	body   []byte
}

func (w *writer) Header() http.Header         { return w.header }
func (w *writer) WriteHeader(status int)      { w.status = status }
func (w *writer) Write(p []byte) (int, error) { w.body = append(w.body, p...); return len(p), nil }
