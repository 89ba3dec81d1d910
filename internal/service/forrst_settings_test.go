package service_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/golang-jwt/jwt/v5"

	"github.com/semelhq/semel/internal/rig/clause"
)

// forrstUpstream answers each request with what it got: the number of the request, and its
// Idempotency-Key.
func forrstUpstream(t *testing.T) (url string, calls *atomic.Int64) {
	t.Helper()
	calls = new(atomic.Int64)
	id := regexp.MustCompile(`"id":"[^"]*"`)
	u := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, `{"protocol":{"name":"forrst","version":"0.1.0"},%s,"result":{"n":%d,"key":%q}}`, id.Find(body), calls.Add(1), r.Header.Get("Idempotency-Key"))
	}))
	t.Cleanup(u.Close)
	return u.URL, calls
}

// forrstCall is a request with a key.
func forrstCall(id, function, amount, key string) string {
	return fmt.Sprintf(`{"protocol":{"name":"forrst","version":"0.1.0"},"id":%q,"call":{"function":%q,"version":"1.0.0","arguments":{"amount":%s}},`+
		`"extensions":[{"urn":"urn:forrst:ext:idempotency","options":{"key":%q}}]}`, id, function, amount, key)
}

// TestForrstSettings: each setting that changes what a sender or the upstream gets does so.
func TestForrstSettings(t *testing.T) {
	clause.Proves(t, "FOR-CTX.1", "FOR-EX.1", "FOR-USE.1")
	serve := func(settings string) (url string, calls *atomic.Int64) {
		up, calls := forrstUpstream(t)
		s := start(t, write(t, fmt.Sprintf(`
store: {url: 'memory:'}
operations: [{name: payments}, {name: reads, class: I0}]
forrst:
  - path: /forrst
    upstream: %s
    functions: [{name: pay, versions: [1.0.0], operation: payments}, {name: show, versions: [1.0.0], operation: reads}]
%s`, up, settings)))
		return s.data("/forrst"), calls
	}
	plain, _ := serve("")
	set, _ := serve("    published_form: true\n    read_keys: ignore\n    pass_key: Idempotency-Key\n")
	for _, c := range []struct {
		url, body string
		status    int
		text      string
	}{
		{plain, forrstCall("req_1", "pay", "1", "k"), 200, `"result":{"n":1,"key":""}`},
		{plain, forrstCall("req_2", "pay", "2", "k"), 409, `"original_arguments_hash":"hmac-sha256:`},
		{plain, forrstCall("req_3", "show", "1", "k"), 400, `EXTENSION_NOT_APPLICABLE`},
		{set, forrstCall("req_1", "pay", "1", "k"), 200, `"result":{"n":1,"key":"k"}`},
		{set, forrstCall("req_2", "pay", "2", "k"), 409, `"original_arguments_hash":"sha256:`},
		{set, forrstCall("req_3", "show", "1", "k"), 200, `"result":{"n":2,"key":""}}`},
	} {
		if status, _, text := do(t, "POST", c.url, c.body); status != c.status || !strings.Contains(text, c.text) {
			t.Errorf("%s: %d %s, want %d %s", c.body, status, text, c.status, c.text)
		}
	}
}

// TestKeyPatternsOfVerifiedCallers: the patterns of Forrst's specification are taken as written,
// and of two callers who are verified, by a token or a JWT each, neither blocks the other.
// Without verified callers the second is refused, and nothing is executed or shown.
func TestKeyPatternsOfVerifiedCallers(t *testing.T) {
	clause.Proves(t, "FOR-KEY.1")
	up, calls := forrstUpstream(t)
	is := newIssuer(t)
	// The tokens are alice-secret and bob-secret.
	known := fmt.Sprintf(`auth: {default_tenant: acme, tokens: [{name: alice, sha256: 0c848abb03307b06cf70cd4e29c157dc81af5e94ab3eb1d0c59a120269572376}, {name: bob, sha256: 9f03ef1533a68d2f506f81ef463c1183a82a6bd40e45613f36e6fe1889cf1b99}], `+
		`jwt: [{issuer: '%s', audience: semel, algorithms: [ES256], jwks_url: '%[1]s', tenant_claim: ''}]}`, is.URL)
	serve := func(auth string) string {
		return start(t, write(t, fmt.Sprintf(`
store: {url: 'memory:'}
%s
operations: [{name: payments}]
forrst: [{path: /forrst, upstream: '%s', functions: [{name: pay, versions: [1.0.0], operation: payments}]}]
`, auth, up))).data("/forrst")
	}
	verified, unverified := serve(known), serve("")
	subject := func(name string) string { return is.token(t, jwt.MapClaims{"sub": name}) }
	ask := func(url, credential, id, key string) (int, string) {
		status, _, text := do(t, "POST", url, forrstCall(id, "pay", "1", key), "Authorization", "Bearer "+credential)
		return status, text
	}
	for _, key := range []string{"order_cust42_1702500000", "charge_order123_attempt1", "reserve_sku123_order456", "550e8400-e29b-41d4-a716-446655440000"} {
		for _, caller := range []func() string{func() string { return "alice-secret" }, func() string { return "bob-secret" }, func() string { return subject("shop") }, func() string { return subject("bank") }} {
			before := calls.Load()
			if status, text := ask(verified, caller(), "req_1", key); status != 200 || !strings.Contains(text, `"processed"`) {
				t.Errorf("%s: %d %s", key, status, text)
			}
			// A JWT is another one by now.
			if status, text := ask(verified, caller(), "req_2", key); status != 200 || !strings.Contains(text, `"original_request_id":"req_1"`) || calls.Load() != before+1 {
				t.Errorf("%s again: %d %s after %d calls", key, status, text, calls.Load()-before)
			}
		}
		before := calls.Load()
		if status, text := ask(unverified, "one-credential", "req_1", key); status != 200 {
			t.Errorf("%s: %d %s", key, status, text)
		}
		status, text := ask(unverified, "another", "req_2", key)
		if status != 409 || !strings.Contains(text, `"reason":"other_caller"`) || strings.Contains(text, `"result":{`) || calls.Load() != before+1 {
			t.Errorf("%s by somebody else whom nobody verified: %d %s after %d calls", key, status, text, calls.Load()-before)
		}
	}
}
