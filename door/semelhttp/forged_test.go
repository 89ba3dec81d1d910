package semelhttp

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/answer"
)

// Whoever wrote a result, a replay has only the headers that the route keeps.
func TestAReplayHasTheHeadersOfTheRoute(t *testing.T) {
	stored := answer.Headers{}.Add(http.Header{
		"Content-Type": {"text/plain"}, "Set-Cookie": {"session=mallory", "b=c"}, "Access-Control-Allow-Origin": {"*"},
		"X-Kept": {"1", "2"}, "X-Other": {"3"}, "Etag": {`"e"`}, "Set-Cookie2": {"old"}, "set-cookie": {"low=1"}, "Transfer-Encoding": {"chunked"},
	})
	names := []string{"Set-Cookie", "Access-Control-Allow-Origin", "X-Kept", "X-Other", "Set-Cookie2", "set-cookie", "Transfer-Encoding"}
	data := append(answer.AppendHead(nil, 200, stored, nil, "", names), "body"...)
	h := &handler{route: Route{KeepHeaders: []string{"X-Kept"}, Profile: IETF()}}
	w := httptest.NewRecorder()
	w.Header().Set("X-Outer", "stays")
	h.replay(w, httptest.NewRequest("POST", "/", nil), &semel.Record{State: semel.Completed, Result: semel.Result{Data: data}})
	want := http.Header{
		"Content-Type": {"text/plain"}, "Etag": {`"e"`}, "X-Kept": {"1", "2"}, "X-Outer": {"stays"}, "Idempotency-Replayed": {"true"},
		"Cache-Control": {"no-store"}, "X-Content-Type-Options": {"nosniff"}, "Content-Length": {"4"},
	}
	got := w.Header()
	if len(got) != len(want) || w.Body.String() != "body" {
		t.Errorf("got %v and %q, want %v", got, w.Body, want)
	}
	for name, values := range want {
		if len(got[name]) != len(values) || got[name][len(values)-1] != values[len(values)-1] {
			t.Errorf("%s is %q, want %q", name, got[name], values)
		}
	}
}
