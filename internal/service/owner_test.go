package service_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/semelhq/semel/internal/service/auth"
)

// TestNobodyKeepsAKeyFromItsOwner: what the upstream refused to a made-up credential, or
// what never reached it, is executed for its owner, at a route and over Forrst.
func TestNobodyKeepsAKeyFromItsOwner(t *testing.T) {
	var runs, status atomic.Int64
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.Header.Get("Authorization"), "made-up") {
			w.WriteHeader(int(status.Load()))
			return
		}
		runs.Add(1)
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, `{"protocol":{"name":"forrst","version":"0.1.0"},"id":"r","result":{}}`)
	})
	up := httptest.NewServer(h)
	defer up.Close()
	later, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := later.Addr().String()
	_ = later.Close() // nobody listens there now
	s := start(t, write(t, strings.NewReplacer("UP", up.URL, "LATER", "http://"+addr).Replace(`
store: {url: 'memory:'}
operations: [{name: pay}, {name: call}]
routes: [{match: POST /pay, upstream: UP, operation: pay}, {match: POST /later, upstream: LATER, operation: pay}]
forrst: [{path: /forrst, upstream: UP, functions: [{name: pay, versions: [1.0.0], operation: call}]}]
`)))
	send := func(door, key, who, amount string) (int, string) {
		t.Helper()
		body := `{"amount":` + amount + `}`
		if door == "/forrst" {
			body = fmt.Sprintf(`{"protocol":{"name":"forrst","version":"0.1.0"},"id":"r","call":{"function":"pay","arguments":{"amount":%s}},"extensions":[{"urn":"urn:forrst:ext:idempotency","options":{"key":%q}}]}`, amount, key)
		}
		got, _, text := do(t, "POST", s.data(door), body, "Idempotency-Key", key, "Authorization", "Bearer "+who)
		return got, text
	}
	keys := []string{
		unguessable, "invoice-2026-11-23-000042", "order-1002-attempt-1-2026", "checkout:customer-1234:2026-11",
		"00000000-0000-0000-0000-000000000001", "urn:order:2026:11:23:00017", "payment:1002:4999:EUR:2026-11-23T12:00:00Z",
	}
	for _, door := range []string{"/pay", "/forrst"} {
		for _, refused := range []int64{401, 403, 400} {
			for _, key := range keys {
				key = fmt.Sprint(key, "-", refused)
				status.Store(refused)
				before := runs.Load()
				if got, text := send(door, key, "made-up", "1"); got < 400 || runs.Load() != before {
					t.Fatalf("%s with %s: the stranger got %d %s", door, key, got, text)
				}
				for range 2 {
					if got, text := send(door, key, "owner", "2"); got != 200 || runs.Load() != before+1 {
						t.Errorf("%s with %s after %d: the owner got %d %s, executed %d times", door, key, refused, got, text, runs.Load()-before)
					}
				}
			}
		}
	}
	if got, text := send("/later", unguessable, "expired", "1"); got != 502 {
		t.Fatal(got, text)
	}
	back := httptest.NewUnstartedServer(h)
	_ = back.Listener.Close()
	if back.Listener, err = net.Listen("tcp", addr); err != nil {
		t.Fatal(err)
	}
	back.Start()
	defer back.Close()
	if got, text := send("/later", unguessable, "renewed", "1"); got != 200 {
		t.Errorf("after the upstream was not reached: %d %s", got, text)
	}
}

// TestWhatARefusedCallerIsTold: what to do about it, in the words of the service and not of
// the library.
func TestWhatARefusedCallerIsTold(t *testing.T) {
	up, calls := counting(t)
	is := newIssuer(t)
	_, sum := auth.NewToken()
	s := start(t, write(t, fmt.Sprintf(`
store: {url: 'memory:'}
auth: {tokens: [{name: alice, sha256: %s}], jwt: [{issuer: '%s', audience: semel, algorithms: [ES256], jwks_url: '%[2]s', tenant_claim: ''}]}
operations: [{name: default}, {name: call}]
routes: [{match: POST /pay, upstream: '%s', key: required}]
forrst: [{path: /forrst, upstream: '%[3]s', functions: [{name: pay, versions: [1.0.0], operation: call}]}]
`, sum, is.URL, up)))
	expired := is.token(t, jwt.MapClaims{"sub": "shop", "exp": time.Now().Add(-time.Hour).Unix()})
	for _, door := range []string{"/pay", "/v1/operations/default/executions", "/forrst"} {
		for _, c := range []struct {
			credential, says, challenge string
		}{
			{"", "", "Bearer"},
			{"Bearer forged", "", `error="invalid_token"`},
			{"Bearer " + expired, "expired", `error="invalid_token"`},
		} {
			body := `{"protocol":{"name":"forrst","version":"0.1.0"},"id":"r","call":{"function":"pay","arguments":{}}}`
			if door != "/forrst" {
				body = "{}"
			}
			header := []string{"Idempotency-Key", unguessable}
			if c.credential != "" {
				header = append(header, "Authorization", c.credential)
			}
			status, got, text := do(t, "POST", s.data(door), body, header...)
			if status != 401 || !strings.Contains(text, c.says) || !strings.Contains(got.Get("WWW-Authenticate"), c.challenge) {
				t.Errorf("%s with %.10q: %d %s, %q, want %q and %s", door, c.credential, status, text, got.Get("WWW-Authenticate"), c.says, c.challenge)
			}
			for _, word := range []string{"Options.", "Route.", "semelhttptest", "Plaid"} {
				if strings.Contains(text, word) {
					t.Errorf("%s with %.10q speaks of %s: %s", door, c.credential, word, text)
				}
			}
		}
	}
	if calls.Load() != 0 {
		t.Error("the upstream was reached")
	}
}
