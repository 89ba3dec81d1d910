package service_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/semelhq/semel/internal/peer"
)

// Every answer of the admin listener says that it is Semel's, and on the data listener the ones of
// the execution API do. An upstream can't say it.
func TestWhoAnswers(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		peer.Mark(w.Header(), peer.Admin)
		w.Header().Set("Trailer", peer.Header)
		_, _ = w.Write([]byte("{}"))
		w.Header()[http.TrailerPrefix+peer.Header] = []string{"admin/v1"}
	}))
	defer up.Close()
	s := start(t, write(t, "store: {url: 'memory:'}\nroutes: [{match: /shop/, upstream: '"+up.URL+"'}, {match: 'POST /pay', upstream: '"+up.URL+"', operation: pay}]\noperations: [{name: default}, {name: pay}]\n"))
	for url, want := range map[string]string{
		s.admin("/livez"): "admin/v1", s.admin("/readyz"): "admin/v1", s.admin("/metrics"): "admin/v1", s.admin("/"): "admin/v1", s.admin("/ui/none"): "admin/v1",
		s.admin("/v1/records"): "admin/v1", s.admin("/v1/none"): "admin/v1", s.admin("/openapi.json"): "admin/v1",
		s.data("/v1/operations/"): "data/v1", s.data("/v1/executions/x"): "data/v1", s.data("/none"): "data/v1",
		s.data("/shop/v1/records"): "",
	} {
		if status, h, _ := do(t, "GET", url, ""); h.Get(peer.Header) != want {
			t.Errorf("%s: %d by %q, want %q", url, status, h.Get(peer.Header), want)
		}
	}
	if status, h, _ := do(t, "GET", s.admin("/v1/records"), "", "Host", "elsewhere.example"); status != http.StatusMisdirectedRequest || h.Get(peer.Header) != "admin/v1" {
		t.Errorf("a refusal before the API: %d by %q", status, h.Get(peer.Header))
	}
	for range 2 { // the first answer, and its replay
		status, h, _ := do(t, "POST", s.data("/pay"), "{}", "Idempotency-Key", "k-1")
		if status != http.StatusOK || h.Get(peer.Header) != "" || strings.Contains(h.Get("Trailer"), peer.Header) {
			t.Errorf("%d, %v", status, h)
		}
	}
}
