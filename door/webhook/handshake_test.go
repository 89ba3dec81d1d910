package webhook

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestHandshake(t *testing.T) {
	r := newRig(t, "whatsapp")
	for query, want := range map[string]int{
		"hub.mode=subscribe&hub.verify_token=the+owner%27s+token&hub.challenge=1158201444": 200,
		"hub.mode=subscribe&hub.verify_token=another&hub.challenge=1158201444":             403,
		"hub.verify_token=the+owner%27s+token":                                             403,
	} {
		w := httptest.NewRecorder()
		r.receiver.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/hook?"+query, nil))
		if w.Code != want || want == 200 && w.Body.String() != "1158201444" {
			t.Errorf("%s: %d %s", query, w.Code, w.Body)
		}
	}
}

// A sender that asks by POST gets its answer if it has signed the question, and nothing is
// handled.
func TestHandshakeByPost(t *testing.T) {
	r := newRig(t, "slack")
	ask := `{"type":"url_verification","challenge":"3eZbrw1aB10FEMAGAZd4FyFQ"}`
	for name, c := range map[string]struct {
		d    *Delivery
		want int
	}{
		"signed":              {resign(t, "slack", ask), http.StatusOK},
		"without a challenge": {resign(t, "slack", `{"type":"url_verification"}`), http.StatusBadRequest},
		"with a long one":     {resign(t, "slack", `{"type":"url_verification","challenge":"`+strings.Repeat("x", maxChallenge+1)+`"}`), http.StatusBadRequest},
		"not signed":          {&Delivery{Header: http.Header{}, Body: []byte(ask)}, http.StatusUnauthorized},
		"signed and changed":  {&Delivery{Header: resign(t, "slack", ask).Header, Body: []byte(strings.Replace(ask, "3eZ", "4eZ", 1))}, http.StatusUnauthorized},
		"another type":        {resign(t, "slack", `{"type":"event_callback","event_id":"Ev02","event":{"type":"message"}}`), http.StatusOK},
	} {
		w := httptest.NewRecorder()
		req := httptest.NewRequest(http.MethodPost, "/hook", bytes.NewReader(c.d.Body))
		req.Header = c.d.Header
		r.receiver.ServeHTTP(w, req)
		if w.Code != c.want || name == "signed" && w.Body.String() != "3eZbrw1aB10FEMAGAZd4FyFQ" {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
	r.work()
	if len(r.handled) != 1 {
		t.Errorf("handled %v", r.handled)
	}
	for _, bad := range []string{
		"{token: t, posted: '{body:type}=x', challenge: '{body:c}'}", "{challenge: c}", "{posted: '{body:type}', challenge: '{body:c}'}",
		"{posted: '{header:X-Type}=x', challenge: '{body:c}'}", "{posted: '{body:type}=x', challenge: c}",
	} {
		text := "name: a\nsignature: {in: '{header:S}', encoding: hex}\nevents: [{id: '{body:id}'}]\nhorizon: 1d\nhandshake: " + bad + "\n"
		if _, err := Load("a.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), "handshake") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
