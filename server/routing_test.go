package server_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// One key runs once, however the path and the method are spelled.
func TestAKeyCantRunAgainByAnotherSpelling(t *testing.T) {
	var hits atomic.Int64
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hits.Add(1)
		w.WriteHeader(201)
		_, _ = io.WriteString(w, r.Method+" "+r.RequestURI)
	}))
	defer upstream.Close()
	s := start(t, write(t, strings.ReplaceAll(`
store: {url: 'memory:'}
operations: [{name: pay}]
routes:
  - {match: 'POST /pay', upstream: UPSTREAM, operation: pay}
  - {match: 'POST /tree/', upstream: UPSTREAM, operation: pay}
  - {match: '/', upstream: UPSTREAM, mode: 'off'}
`, "UPSTREAM", upstream.URL)))
	for _, c := range []struct {
		method, path, key string
		status            int
		text              string
		unguarded         string
	}{
		{"POST", "/pay", "k1", 201, "POST /pay", ""},
		{"POST", "/pay", "k1", 201, "POST /pay", ""},
		// The same route, but another request.
		{"POST", "//pay", "k1", 422, "conflict", ""},
		{"POST", "/a/../pay", "k1", 422, "conflict", ""},
		{"POST", "//pay", "k2", 201, "POST //pay", ""},
		{"POST", "/pay/", "k1", 400, "ambiguous_target", ""},
		{"POST", "/pay%2f", "k1", 400, "ambiguous_target", ""},
		{"POST", "/pay;x", "k1", 400, "ambiguous_target", ""},
		{"POST", "/x/%2e%2e/pay", "k1", 400, "ambiguous_target", ""},
		{"post", "/pay", "k1", 501, "method_spelling", ""},
		// Unguarded requests pass, without a redirect.
		{"POST", "/other//a/../b", "k1", 201, "POST /other//a/../b", "off"},
		{"POST", "/tree", "k3", 201, "POST /tree", ""},
		{"POST", "/pay/", "", 201, "POST /pay/", ""},
	} {
		var header []string
		if c.key != "" {
			header = []string{"Idempotency-Key", c.key}
		}
		before := hits.Load()
		status, got, text := do(t, c.method, s.data(c.path), "one", header...)
		if status != c.status || !strings.Contains(text, c.text) || got.Get("Semel-Unguarded") != c.unguarded {
			t.Errorf("%s %s with %q: got %d %s, %v", c.method, c.path, c.key, status, text, got)
		}
		if status >= 400 && hits.Load() != before {
			t.Errorf("%s %s was executed", c.method, c.path)
		}
	}
	if n := hits.Load(); n != 5 {
		t.Errorf("%d executions, want 5", n)
	}
}
