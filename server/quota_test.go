package server_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/semelhq/semel/server/auth"
)

// TestQuotas: over their quota, callers begin nothing new at any door, and still get
// their recorded answers. Callers of other tenants, and unknown callers, use nothing of
// it.
func TestQuotas(t *testing.T) {
	up, _ := counting(t)
	token, sums := map[string]string{}, map[string]string{}
	for _, who := range []string{"alice", "bob", "eve"} {
		token[who], sums[who] = auth.NewToken()
	}
	s := start(t, write(t, fmt.Sprintf(`
store: {url: "memory:"}
quotas: {principal_records: 2, tenant_records: 3}
auth:
  default_tenant: acme
  tokens: [{name: alice, sha256: %q}, {name: bob, sha256: %q}, {name: eve, tenant: evil, sha256: %q}]
operations: [{name: order}, {name: charge}]
routes: [{match: "POST /orders", upstream: %q, operation: order}]
`, sums["alice"], sums["bob"], sums["eve"], up)))
	route := func(who, key string, want int, says ...string) {
		t.Helper()
		credential := "Basic " + who // of an unknown caller
		if token[who] != "" {
			credential = "Bearer " + token[who]
		}
		status, header, text := do(t, "POST", s.data("/orders"), "{}", "Idempotency-Key", key, "Authorization", credential)
		wantRefusal(t, who+" at the route", status, want, header.Get("Retry-After"), text, says)
	}
	api := func(who, key string, want int, says ...string) {
		t.Helper()
		status, header, text := do(t, "POST", s.data("/v1/operations/charge/executions"), "{}", "Idempotency-Key", key, "Authorization", "Bearer "+token[who])
		wantRefusal(t, who+" at the API", status, want, header.Get("Retry-After"), text, says)
		if status == 429 && (header.Get("Location") != "" || strings.Contains(text, `"record":`)) {
			t.Errorf("a record is named that is not there: %v %s", header, text)
		}
	}
	for i := range 3 { // with a credential each, and with keys that bind
		route(fmt.Sprint("stranger", i), fmt.Sprint(unguessable, i), 201)
	}
	route("another stranger", "k", 429, "tenant_records")
	route("stranger0", unguessable+"0", 201)

	route("alice", "1", 201)
	api("alice", "1", 201)
	api("alice", "2", 429, "principal_records", "The caller has begun as many new calls as its quota allows.")
	route("alice", "2", 429, "principal_records")
	route("alice", "1", 201)
	api("alice", "1", 409, "in_flight")

	route("bob", "1", 201)
	route("bob", "2", 429, "tenant_records")
	api("eve", "1", 201)
	route("eve", "1", 201)

	if text := s.log.String(); !strings.Contains(text, "decision=throttled") || !strings.Contains(text, "limit=principal_records") {
		t.Errorf("the log does not say so:\n%s", text)
	}
}

func wantRefusal(t *testing.T, who string, status, want int, retryAfter, text string, says []string) {
	t.Helper()
	if status != want || (retryAfter != "") != (want == 429 || want == 409) {
		t.Errorf("%s: %d, retry after %q, want %d: %s", who, status, retryAfter, want, text)
	}
	for _, part := range says {
		if !strings.Contains(text, part) {
			t.Errorf("%s: no word of %q: %s", who, part, text)
		}
	}
}
