package service_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/semelhq/semel/internal/service/auth"
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
	for i := range 2 { // with a credential each, and with keys that bind
		route(fmt.Sprint("stranger", i), fmt.Sprint(unguessable, i), 201)
	}
	route("another stranger", "k", 429, "principal_records") // from the same address
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

// TestStrangersUpToTheirQuota: what the upstream refuses uses up nobody's quota of records, and
// what one address uses up is not another's. In a minute an address begins as many calls that come
// to nothing as it may have records.
func TestStrangersUpToTheirQuota(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status := http.StatusCreated
		if strings.Contains(r.Header.Get("Authorization"), "made-up") {
			status = http.StatusUnauthorized
		}
		w.WriteHeader(status)
	}))
	t.Cleanup(up.Close)
	s := start(t, write(t, fmt.Sprintf(`
store: {url: "memory:"}
quotas: {principal_records: 20, tenant_records: 30, window: 1d}
routes: [{match: "POST /orders", upstream: %q}]
`, up.URL)))
	at := map[string]*http.Client{}
	for _, addr := range []string{"127.0.0.1", "127.0.0.2"} {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(addr)}}
		if addr == "127.0.0.2" {
			if l, err := net.Listen("tcp", addr+":0"); err != nil {
				t.Skip("this machine has one loopback address only: ", err)
			} else {
				_ = l.Close()
			}
		}
		transport := &http.Transport{DialContext: dialer.DialContext}
		t.Cleanup(transport.CloseIdleConnections)
		at[addr] = &http.Client{Transport: transport}
	}
	sent := 0
	send := func(addr, who string, want int, says string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.data("/orders"), strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		sent++
		r.Header.Set("Idempotency-Key", fmt.Sprintf("invoice-2026-11-23-%06d", sent))
		r.Header.Set("Authorization", "Bearer "+who)
		resp, err := at[addr].Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if text, _ := io.ReadAll(resp.Body); resp.StatusCode != want || !strings.Contains(string(text), says) {
			t.Fatalf("%s from %s got %d %s, want %d", who, addr, resp.StatusCode, text, want)
		}
	}
	for i := range 19 {
		send("127.0.0.1", fmt.Sprint("made-up", i), 401, "")
	}
	for i := range 20 {
		send("127.0.0.1", fmt.Sprint("honest", i), 201, "")
	}
	send("127.0.0.1", "honest", 429, "principal_records")
	for i := range 10 {
		send("127.0.0.2", fmt.Sprint("honest", i), 201, "")
	}
	send("127.0.0.2", "honest", 429, "tenant_records")

	s = start(t, write(t, fmt.Sprintf(`
store: {url: "memory:"}
quotas: {principal_records: 20}
routes: [{match: "POST /orders", upstream: %q}]
`, up.URL)))
	for i := range 20 {
		send("127.0.0.1", fmt.Sprint("made-up", i), 401, "")
	}
	send("127.0.0.1", "made-up", 429, "aborted_calls")
	send("127.0.0.2", "honest", 201, "")
}

// TestStrangersOfADoorUpToTheirQuota: who sends to an inbox or a webhook uses up nothing of what
// callers of the tenant have, or another door, or servers elsewhere.
func TestStrangersOfADoorUpToTheirQuota(t *testing.T) {
	up, _ := counting(t)
	token, sum := auth.NewToken()
	secret := "s3cret-of-a-webhook"
	s := start(t, write(t, fmt.Sprintf(`
store: {url: "memory:"}
quotas: {principal_records: 2, tenant_records: 3}
auth: {tokens: [{name: alice, sha256: %q}]}
operations: [{name: charge}]
webhooks: [{path: /hooks, source: github, secret_files: [%q], upstream: %q}]
activitypub: [{actors_url: "https://social.example/actors/{actor}", actors: [alice], upstream: %[3]q, instances: [{host: there.example, unsigned: allow}], signatures: {allow_private: true}}]
`, sum, write(t, secret), up)))
	var refused int
	for i := range 4 {
		status, _, text := do(t, "POST", s.data("/actors/alice/inbox"), fmt.Sprintf(`{"id":"https://there.example/a/%d","type":"Like","actor":"https://there.example/users/bob","object":"https://social.example/actors/alice"}`, i),
			"Content-Type", "application/activity+json")
		if status == 429 {
			refused++
		} else if status >= 300 {
			t.Errorf("an activity gets %d: %s", status, text)
		}
	}
	if refused == 0 {
		t.Error("no activity is refused")
	}
	for i := range 2 {
		id := fmt.Sprint("d", i)
		if status, _, text := do(t, "POST", s.data("/hooks"), "{}", signedAs(t, "github", secret, "{}", "X-GitHub-Delivery", id, "X-GitHub-Event", "push")...); status >= 300 {
			t.Errorf("a webhook gets %d: %s", status, text)
		}
		if status, _, text := do(t, "POST", s.data("/v1/operations/charge/executions"), "{}", "Idempotency-Key", id, "Authorization", "Bearer "+token); status != 201 {
			t.Errorf("a caller gets %d: %s", status, text)
		}
	}
}
