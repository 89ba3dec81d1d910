package sse

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestSink: a stream comes event by event, and without a length, because its reader may add an
// event or keep one back; anything else comes as a whole.
func TestSink(t *testing.T) {
	var events []string
	k := &Sink{Event: func(raw []byte) { events = append(events, string(raw)) }}
	k.Header().Set("Content-Type", "Text/Event-Stream; charset=utf-8")
	k.Header().Set("Content-Length", "99")
	k.WriteHeader(http.StatusContinue)
	k.WriteHeader(http.StatusOK)
	_, _ = k.Write([]byte("data: 1\n\ndata"))
	_, _ = k.Write([]byte(": 2\n\nrest"))
	if len(events) != 2 || events[1] != "data: 2\n\n" || !k.Stream || k.Body.String() != "rest" {
		t.Errorf("%q, and then %q", events, k.Body.String())
	}
	k.Head.Set("X-Own", "1")
	k.Head.Set("X-Word", "none")
	w := httptest.NewRecorder()
	k.CopyHead(w, "X-Word")
	if got := w.Result().Header; got.Get("Content-Length") != "" || got.Get("X-Own") != "1" || got["X-Word"] != nil {
		t.Errorf("%v", got)
	}

	whole := &Sink{Event: func([]byte) { t.Error("an event") }}
	whole.Header().Set("Content-Length", "2")
	whole.WriteHeader(http.StatusNotFound)
	_, _ = whole.Write([]byte("{}"))
	if whole.Stream || whole.Status != http.StatusNotFound || whole.Body.String() != "{}" || whole.Head.Get("Content-Length") != "2" {
		t.Errorf("%+v", whole)
	}
}
