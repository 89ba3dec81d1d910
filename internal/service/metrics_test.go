package service_test

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/internal/service/auth"
	"github.com/semelhq/semel/internal/service/metrics"
)

func TestScrapesNeedARole(t *testing.T) {
	clause.Proves(t, "MAP-MON.1")
	s := start(t, write(t, `
store: {url: 'pebble:`+filepath.Join(t.TempDir(), "data")+`'}
auth:
  default_tenant: acme
  tokens: [{name: alice, sha256: `+auth.HashToken("alice")+`}, {name: vera, roles: [viewer], sha256: `+auth.HashToken("vera")+`}]
operations: [{name: pay}]
`))
	begin := func() int {
		status, _, _ := do(t, "POST", s.data("/v1/operations/pay/executions"), `{"key":"k"}`, "Authorization", "Bearer alice")
		return status
	}
	if a, b, c := begin(), begin(), begin(); a != 201 || b != 409 || c != 409 {
		t.Fatal(a, b, c)
	}
	// Who may see one tenant of several is refused: see TestRoles.
	for want, tokens := range map[int][]string{401: {"nobody"}, 403: {"alice"}, 200: {"vera"}} {
		for _, token := range tokens {
			if status, header, text := do(t, "GET", s.admin("/metrics"), "", "Authorization", "Bearer "+token); status != want || header.Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("%s got %d %v %s", token, status, header, text)
			}
		}
	}
	_, _, text := do(t, "GET", s.admin("/metrics"), "", "Authorization", "Bearer vera")
	for _, line := range []string{
		`semel_decisions_total{decision="execute",door="api",operation="pay"} 1`,
		`semel_decisions_total{decision="in_flight",door="api",operation="pay"} 2`,
		`semel_ready 1`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("no %s in\n%s", line, text)
		}
	}
	for _, m := range metrics.Table {
		if !strings.Contains(text, "# HELP "+m.Name+" ") && !quietHere[m.Name] {
			t.Errorf("there is no %s", m.Name)
		}
	}
}

// quietHere are metrics of what this service doesn't have, or of what didn't happen.
var quietHere = map[string]bool{
	"semel_troubles_total": true, "semel_attempts_total": true, "semel_purged_records_total": true,
	"semel_dispatch_tries_total": true, "semel_dispatch_lag_seconds": true, "semel_dispatch_paused": true,
	"semel_evidence_lag_seconds": true, "semel_evidence_lag_entries": true, "semel_evidence_fault": true,
	"semel_evidence_audit_faults": true, "semel_evidence_audit_timestamp_seconds": true,
	"semel_swept_records": true, "semel_attempts": true, "semel_oldest_attempt_seconds": true, "semel_effects_open": true, // after a second
}

func TestMetricsArePushed(t *testing.T) {
	var pushed atomic.Pointer[string]
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body := io.Reader(r.Body)
		if r.Header.Get("Content-Encoding") == "gzip" {
			body, _ = gzip.NewReader(r.Body)
		}
		text, _ := io.ReadAll(body)
		all := r.URL.Path + " " + string(text)
		pushed.Store(&all)
	}))
	defer collector.Close()
	s := start(t, write(t, "store: {url: 'memory:'}\nmetrics: {otlp: '"+collector.URL+"/v1/metrics'}\n"))
	for range 2 {
		do(t, "POST", s.data("/v1/operations/default/executions"), `{"key":"k"}`)
	}
	s.stop()
	if err := <-s.done; err != nil {
		t.Fatal(err)
	}
	s.done <- nil
	if got := pushed.Load(); got == nil || !strings.HasPrefix(*got, "/v1/metrics ") || !strings.Contains(*got, "semel_decisions_total") || !strings.Contains(*got, "semel_added_seconds") {
		t.Errorf("the collector got %q", *got)
	}
}

// Spans go to the collector that the configuration names, and none without one.
func TestTracesArePushed(t *testing.T) {
	pushed := make(chan string, 10)
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body := io.Reader(r.Body)
		if r.Header.Get("Content-Encoding") == "gzip" {
			body, _ = gzip.NewReader(r.Body)
		}
		text, _ := io.ReadAll(body)
		pushed <- r.URL.Path + " " + string(text)
	}))
	defer collector.Close()
	s := start(t, write(t, "store: {url: 'memory:'}\ntraces: {otlp: '"+collector.URL+"/v1/traces'}\n"))
	do(t, "POST", s.data("/v1/operations/default/executions"), `{"key":"k"}`)
	s.stop()
	if err := <-s.done; err != nil {
		t.Fatal(err)
	}
	s.done <- nil
	close(pushed)
	var got strings.Builder
	for text := range pushed {
		got.WriteString(text)
	}
	if !strings.HasPrefix(got.String(), "/v1/traces ") || !strings.Contains(got.String(), "api default") || !strings.Contains(got.String(), "semel.decision") {
		t.Errorf("the collector got %q", got.String())
	}
}
