package enginetest

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/activitypub"
	"github.com/semelhq/semel/door/forrst"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/door/webhook"
	"github.com/semelhq/semel/store/memstore"
)

// driveDoors has doors answer everything that only some of them can say.
func driveDoors(t *testing.T, o *observed) {
	st := memstore.New()
	e, err := semel.New(st, &semel.Options{Events: o.all()})
	must(t, err)
	t.Cleanup(func() { _ = e.Close(context.Background()) })
	post := func(h http.Handler, body string, header ...string) {
		r := httptest.NewRequest(http.MethodPost, "/inbox", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
	alice := []string{"Authorization", "Bearer alice", "Idempotency-Key", "k"}

	guard, err := semelhttp.New(e, nil)
	must(t, err)
	ok := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	pay := guard.Handler(semelhttp.Route{Operation: semel.Operation{Name: "pay", PerRecord: semel.Rate{PerSecond: 0.001, Burst: 1}}}, ok)
	for range 3 { // the last is throttled
		post(pay, "1", alice...)
	}
	post(pay, "1", alice[2:]...) // from nobody
	search := guard.Handler(semelhttp.Route{Operation: semel.Operation{Name: "search"}, FailOpen: true}, ok)

	var kept http.ResponseWriter
	post(guard.Handler(semelhttp.Route{Operation: semel.Operation{Name: "late"}}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		kept = w
		w.WriteHeader(http.StatusOK)
	})), "1", alice...)
	kept.WriteHeader(http.StatusInternalServerError) // after its handler has returned

	service, err := forrst.New(e, forrst.Options{Identify: guard.Caller, Functions: []forrst.Function{{
		Name: "charge", Operation: semel.Operation{Name: "charge"},
		Versions: []forrst.Version{{Version: "1.0.0", Run: func(context.Context, semel.Execution, *forrst.Request) (any, error) {
			return json.RawMessage(`{}`), nil
		}}},
	}}})
	must(t, err)
	post(service, `{"protocol":{"name":"forrst","version":"0.1.0"},"id":"r","call":{"function":"charge","version":"1.0.0","arguments":{}},`+
		`"extensions":[{"urn":"urn:forrst:ext:idempotency","options":{"key":"k"}}]}`, alice...)

	source, err := webhook.Builtin("github")
	must(t, err)
	receiver, err := webhook.New(e, webhook.Options{
		VerifierOptions: webhook.VerifierOptions{Source: source, Secrets: []string{"a webhook's secret"}},
		Handle:          func(context.Context, *webhook.Event) error { return nil },
	})
	must(t, err)
	for _, body := range []string{`{"n":1}`, `{"n":2}`} { // the second is parked
		sum := hmac.New(sha256.New, []byte("a webhook's secret"))
		_, _ = io.WriteString(sum, body)
		post(receiver, body, "X-Hub-Signature-256", "sha256="+hex.EncodeToString(sum.Sum(nil)), "X-GitHub-Delivery", "d1", "X-GitHub-Event", "ping")
	}

	actors, err := activitypub.New(e, activitypub.Options{
		Actors: "https://social.example/actors/{actor}", Shared: "/inbox",
		Exists:   func(context.Context, string) (bool, error) { return true, nil },
		Handle:   func(context.Context, *activitypub.Activity) error { return nil },
		Policies: activitypub.Policies{{Host: "*", Unsigned: true}},
	})
	must(t, err)
	post(actors, "no activity")

	must(t, st.Close())
	post(search, "1", alice...) // fails open
}
