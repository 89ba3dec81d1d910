package service_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/semelhq/semel/internal/rig/clause"
)

// TestForrst: a service in the configuration adds the extension to an upstream that
// lacks it, for callers that auth knows.
func TestForrst(t *testing.T) {
	clause.Proves(t, "FOR-FIRST.1", "FOR-DUP.1", "FOR-CONF.1")
	id := regexp.MustCompile(`"id":"[^"]*"`)
	var mu sync.Mutex
	var bodies []string
	var headers []http.Header
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		bodies, headers = append(bodies, string(body)), append(headers, r.Header)
		fmt.Fprintf(w, `{"protocol":{"name":"forrst","version":"0.1.0"},%s,"result":{"n":%d}}`, id.FindString(string(body)), len(bodies))
	}))
	defer upstream.Close()
	schema := filepath.Join(t.TempDir(), "charge.json")
	if err := os.WriteFile(schema, []byte(`{"properties":{"amount":{"minimum":1}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	// The tokens are alice-secret and bob-secret.
	s := start(t, write(t, strings.NewReplacer("UPSTREAM", upstream.URL, "SCHEMA", schema).Replace(`
store: {url: 'memory:'}
auth: {default_tenant: acme, tokens: [{name: alice, sha256: 0c848abb03307b06cf70cd4e29c157dc81af5e94ab3eb1d0c59a120269572376}, {name: bob, sha256: 9f03ef1533a68d2f506f81ef463c1183a82a6bd40e45613f36e6fe1889cf1b99}]}
operations: [{name: payments, financial: true, archive: false}, {name: reads, class: I0}]
forrst:
  - path: /forrst
    upstream: UPSTREAM
    arguments_hash: plain
    principal_header: X-Principal
    functions:
      - {name: payments.charge, versions: [1.0.0], operation: payments, arguments: [{file: 'SCHEMA'}]}
      - {name: payments.show, versions: [1.0.0], operation: reads}
routes: [{match: /, upstream: "http://127.0.0.1:1", mode: "off"}]
`)))
	call := func(id, function, amount, extensions string) string {
		return fmt.Sprintf(`{"protocol":{"name":"forrst","version":"0.1.0"},"id":%q,"call":{"function":%q,"arguments":{"amount":%s}}%s}`, id, function, amount, extensions)
	}
	const keyed = `,"extensions":[{"urn":"urn:forrst:ext:idempotency","options":{"key":"k"}}]`
	for i, c := range []struct {
		token, body string
		status      int
		text        string
		sent        int
	}{
		{"", call("req_1", "payments.charge", "1", keyed), 401, "UNAUTHORIZED", 0},
		{"alice-secret", call("req_1", "payments.charge", "1", ""), 400, "INVALID_ARGUMENTS", 0},
		{"alice-secret", call("req_1", "payments.charge", "1", keyed), 200, `"result":{"n":1},"extensions":[{"urn":"urn:forrst:ext:idempotency","data":{"key":"k","status":"processed"`, 1},
		{"alice-secret", call("req_2", "payments.charge", "1", keyed), 200, `"result":{"n":1},"extensions":[{"urn":"urn:forrst:ext:idempotency","data":{"key":"k","status":"cached","original_request_id":"req_1"`, 1},
		{"alice-secret", call("req_3", "payments.charge", "2", keyed), 409, `"original_arguments_hash":"sha256:`, 1},
		{"alice-secret", call("req_3", "payments.charge", "0", strings.Replace(keyed, `"k"`, `"other"`, 1)), 422, `"SCHEMA_VALIDATION_FAILED","message":"It does not fit minimum","source":{"pointer":"/call/arguments/amount"}`, 1},
		{"alice-secret", strings.Replace(call("req_3", "urn:cline:forrst:fn:describe", "1", ""), `"amount":1`, `"function":"payments.charge"`, 1), 200, `"schema":{"arguments":{"properties":{"amount":{"minimum":1}}}}`, 1},
		{"bob-secret", call("req_4", "payments.charge", "1", keyed), 200, `"result":{"n":2}`, 2},
		{"bob-secret", call("req_5", "payments.show", "1", ""), 200, `"result":{"n":3}`, 3},
		{"bob-secret", call("req_6", "payments.refund", "1", keyed), 404, "FUNCTION_NOT_FOUND", 3},
		{"bob-secret", strings.Replace(call("req_7", "urn:cline:forrst:fn:health", "1", ""), `"amount":1`, "", 1), 200, `"database":{"status":"healthy"`, 3},
	} {
		var header []string
		if c.token != "" {
			header = []string{"Authorization", "Bearer " + c.token}
		}
		status, _, text := do(t, "POST", s.data("/forrst"), c.body, header...)
		mu.Lock()
		if status != c.status || !strings.Contains(text, c.text) || len(bodies) != c.sent {
			t.Errorf("%d: %d %s; %d were sent on", i, status, text, len(bodies))
		}
		mu.Unlock()
	}
	if strings.Contains(strings.Join(bodies, ""), "idempotency") {
		t.Errorf("the extension was sent on: %q", bodies)
	}
	if h := headers[0]; h.Get("X-Principal") != "alice" || h.Get("Authorization") != "" {
		t.Errorf("the upstream got %v", h)
	}
}

// TestForrstIsNoDoorForPages: a page that has its own name point to this machine, or is
// another site's, calls no function; nor does a credential that nobody verifies.
func TestForrstIsNoDoorForPages(t *testing.T) {
	calls := 0
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls++
		_, _ = io.WriteString(w, `{"protocol":{"name":"forrst","version":"0.1.0"},"id":"req_1","result":{}}`)
	}))
	defer upstream.Close()
	const body = `{"protocol":{"name":"forrst","version":"0.1.0"},"id":"req_1","call":{"function":"payments.show","version":"1.0.0","arguments":{}}}`
	serve := func(more string) *running {
		return start(t, write(t, strings.NewReplacer("UPSTREAM", upstream.URL, "MORE", more).Replace(`
store: {url: 'memory:'}
listen: {hosts: [rpc.example]}
operations: [{name: reads, class: I0}]
forrst: [{path: /forrst, upstream: UPSTREAM, functions: [{name: payments.show, versions: [1.0.0], operation: reads}]MORE}]
`)))
	}
	const known = "}]\nauth: {tokens: [{name: alice, sha256: 0c848abb03307b06cf70cd4e29c157dc81af5e94ab3eb1d0c59a120269572376}]}\n#"
	open, verified, named, shared := serve(""), serve(known), serve(", credential: X-Api-Key"+known), serve(", anonymous: share"+known)
	for _, c := range []struct {
		what   string
		s      *running
		status int
		header []string
	}{
		{"a program on this machine", open, 200, nil},
		{"by a name that is configured", open, 200, []string{"Host", "rpc.example"}},
		{"a rebound page", open, 421, []string{"Host", "evil.example", "Origin", "http://evil.example"}},
		{"a page of another site", open, 403, []string{"Origin", "http://evil.example"}},
		{"a page of another site that a browser marks", open, 403, []string{"Sec-Fetch-Site", "cross-site"}},
		{"a caller", verified, 200, []string{"Authorization", "Bearer alice-secret"}},
		{"a made-up password", verified, 401, []string{"Authorization", "Basic eDp5"}},
		{"a made-up key", verified, 401, []string{"X-Api-Key", "x"}},
		{"no credential", verified, 401, nil},
		{"a key that the upstream verifies", named, 200, []string{"X-Api-Key", "x"}},
		{"another credential than that", named, 401, []string{"Authorization", "Basic eDp5"}},
		{"anybody where callers share", shared, 200, nil},
		{"any credential where callers share", shared, 200, []string{"Authorization", "Basic eDp5"}},
	} {
		before := calls
		status, _, text := do(t, "POST", c.s.data("/forrst"), body, c.header...)
		if status != c.status || (calls > before) != (status == 200) {
			t.Errorf("%s: %d, %d calls: %s", c.what, status, calls-before, text)
		}
	}
}
