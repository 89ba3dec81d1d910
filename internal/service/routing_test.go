package service_test

import (
	"cmp"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/semelhq/semel/internal/rig/clause"
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
		{"POST", "/pay\\", "k1", 400, "ambiguous_target", ""},
		{"POST", "/pay%5c", "k1", 400, "ambiguous_target", ""},
		{"POST", "/x\\..\\pay", "k1", 400, "ambiguous_target", ""},
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

// TestNothingPassesADoor: a route for everything takes no spelling of the path of a door,
// where its upstream may take for checked what nobody has checked.
func TestNothingPassesADoor(t *testing.T) {
	var passed atomic.Int64
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { passed.Add(1) }))
	defer upstream.Close()
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("whsec_YSBzZWNyZXQgb2YgdGhlIHNlbmRlciwgYXMgbG9uZyBhcyBuZWVkZWQ="), 0o600); err != nil {
		t.Fatal(err)
	}
	s := start(t, write(t, strings.NewReplacer("UPSTREAM", upstream.URL, "SECRET", secret).Replace(doors+`
routes: [{match: '/', upstream: UPSTREAM, mode: 'off'}]
`)))
	for _, door := range []string{"/hooks/github", "/rpc", "/actors/alice/inbox", "/inbox"} {
		last := door[strings.LastIndex(door, "/")+1:]
		for _, path := range []string{
			door + "/", "/" + door, "/." + door, "/x/.." + door, "/x/%2e%2e" + door, strings.ToUpper(door), door + "%2f", door + "%2F", door + ";x",
			door + "\\", door + "%5c", door + "/.", strings.Replace(door, last, strings.ToUpper(last[:1])+last[1:], 1),
		} {
			status, _, text := do(t, "POST", s.data(path), "{}")
			if passed.Load() != 0 {
				t.Fatalf("POST %s reached the upstream of the route", path)
			}
			if status < 400 {
				t.Errorf("POST %s: %d %s", path, status, text)
			}
		}
	}
	for _, path := range []string{"/", "/hooks", "/hooks/githubs", "/hooks/github/more", "/rpcs", "/actors/alice"} {
		before := passed.Load()
		if status, _, text := do(t, "POST", s.data(path), "{}"); status != 200 || passed.Load() != before+1 {
			t.Errorf("POST %s: %d %s", path, status, text)
		}
	}
}

// doors configures one of each kind, for SECRET and UPSTREAM.
const doors = `
store: {url: 'memory:'}
operations: [{name: charge}]
webhooks: [{path: /hooks/github, source: github, secret_files: [SECRET], mode: sync, upstream: UPSTREAM}]
activitypub: [{actors_url: 'https://social.example/actors/{actor}', actors: [alice], shared_inbox: /inbox, upstream: UPSTREAM, upstream_secret_files: [SECRET]}]
forrst: [{path: /rpc, upstream: UPSTREAM, functions: [{name: payments.charge, versions: [1.0.0], operation: charge}]}]
`

// A key that a template makes from a cart is one whatever the order of its lines, and the
// upstream gets it.
func TestAKeyOfContentReachesTheUpstream(t *testing.T) {
	clause.Proves(t, "MAP-CART.5", "MAP-PAY.4")
	var hits atomic.Int64
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Header.Get("Idempotency-Key")+" "+strconv.FormatInt(hits.Add(1), 10))
	}))
	defer upstream.Close()
	s := start(t, write(t, `
store: {url: 'memory:'}
operations: [{name: carts, window: 30m}]
routes:
  - match: POST /carts
    upstream: `+upstream.URL+`
    operation: carts
    key_template: {format: cart_mandate, values: {session_id: json:/session_id, cart_hash: cart:/lines}}
    pass_key: Idempotency-Key
`))
	const a, b = `{"variant":"A","quantity":1,"price":"5"}`, `{"variant":"B","quantity":2,"price":"9"}`
	var first string
	for _, lines := range []string{a + "," + b, b + "," + a} {
		status, _, got := do(t, "POST", s.data("/carts"), `{"session_id":"s1","lines":[`+lines+`]}`, "Content-Type", "application/json", "Idempotency-Key", "mine")
		first = cmp.Or(first, got)
		if status != 200 || got != first || !strings.HasPrefix(got, "cart_mandate:s1:") || !strings.HasSuffix(got, " 1") {
			t.Errorf("%d %s after %s", status, got, first)
		}
	}
	if status, _, _ := do(t, "POST", s.data("/carts"), `{"session_id":"s1","lines":[`+a+","+b+`],"amount":1}`, "Content-Type", "application/json"); status != 422 {
		t.Errorf("another body under the key gets %d", status)
	}
}
