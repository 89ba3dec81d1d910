package problem

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

func TestWrite(t *testing.T) {
	w := httptest.NewRecorder()
	if n := RetryAfter(w.Header(), 1500*time.Millisecond); n != 2 {
		t.Errorf("%d seconds", n)
	}
	Write(w, http.StatusConflict, map[string]string{"code": "held"})
	want := map[string]string{
		"Content-Type": Type, "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Content-Length": "15", "Retry-After": "2",
	}
	got := map[string]string{}
	for name := range w.Header() {
		got[name] = w.Header().Get(name)
	}
	if w.Code != http.StatusConflict || w.Body.String() != `{"code":"held"}` || !maps.Equal(got, want) {
		t.Errorf("%d %v %s, want the headers %v", w.Code, got, w.Body, want)
	}
}

func TestSeconds(t *testing.T) {
	for d, want := range map[time.Duration]int64{0: 1, 1: 1, time.Second: 1, time.Second + 1: 2, time.Minute: 60} {
		if got := Seconds(d); got != want {
			t.Errorf("%v is %d seconds, want %d", d, got, want)
		}
	}
}

func TestSentence(t *testing.T) {
	for text, want := range map[string]string{"": "The call is not valid.", "no key": "No key.", "No.": "No."} {
		if got := Sentence(text); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
}
