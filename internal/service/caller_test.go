package service_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/semelhq/semel/internal/service/auth"
)

const unguessable = "0f8fad5b-d9cb-469f-a165-70867728950e"

// counting is an upstream that counts its calls.
func counting(t *testing.T) (url string, calls *atomic.Int64) {
	t.Helper()
	calls = new(atomic.Int64)
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := calls.Add(1)
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, fmt.Sprint("ord_", n))
	}))
	t.Cleanup(up.Close)
	return up.URL, calls
}

func TestCallersWithoutAVerifiedIdentity(t *testing.T) {
	up, calls := counting(t)
	s := start(t, write(t, "store: {url: 'memory:'}\nroutes:\n  - {match: 'POST /orders', upstream: "+up+"}\n"))
	send := func(key string, header ...string) (int, string) {
		status, _, text := do(t, "POST", s.data("/orders"), `{"a":1}`, append([]string{"Idempotency-Key", key}, header...)...)
		return status, text
	}
	for i, c := range []struct {
		key, header, value string
		status             int
		text               string
	}{
		{unguessable, "Authorization", "Bearer jwt-10:00", 201, "ord_1"},
		{unguessable, "Authorization", "Bearer jwt-10:15", 409, "other_caller"},
		{unguessable, "Authorization", "Bearer jwt-10:00", 201, "ord_1"},
		{unguessable, "X-Kept", "none", 409, "other_caller"},
		{"order-1", "X-Api-Key", "victim", 201, "ord_2"},
		{"order-1", "X-Api-Key", "attacker", 201, "ord_3"},
		{"order-2", "Cookie", "session=victim", 201, "ord_4"},
		{"order-2", "Cookie", "session=attacker", 201, "ord_5"},
		{"order-3", "X-Forwarded-For", "203.0.113.1", 401, "unidentified"},
		{"order-3", "X-Kept", "none", 201, "ord_6"}, // nobody else can be on this machine
	} {
		if status, text := send(c.key, c.header, c.value); status != c.status || !strings.Contains(text, c.text) {
			t.Errorf("%d: %d %s, want %d with %s", i, status, text, c.status, c.text)
		}
	}
	if n := calls.Load(); n != 6 {
		t.Errorf("the upstream was called %d times, want 6", n)
	}
}

// TestAnonymousIsRefusedWhereCallersAreKnown: if you configure callers, a route takes
// others only if it says so.
func TestAnonymousIsRefusedWhereCallersAreKnown(t *testing.T) {
	up, calls := counting(t)
	token, sum := auth.NewToken()
	s := start(t, write(t, "store: {url: 'memory:'}\nauth:\n  tokens: [{name: alice, sha256: "+sum+"}]\nroutes:\n"+
		"  - {match: 'POST /orders', upstream: "+up+"}\n  - {match: 'POST /open', upstream: "+up+", anonymous: loopback}\n"))
	for _, c := range []struct {
		path   string
		header []string
		status int
	}{
		{"/orders", nil, 401},
		{"/orders", []string{"Cookie", "visit=1"}, 201},
		{"/orders", []string{"Authorization", "Bearer " + token}, 201},
		{"/orders", []string{"Authorization", "Bearer other"}, 401},
		{"/open", nil, 201},
	} {
		status, _, text := do(t, "POST", s.data(c.path), "{}", append([]string{"Idempotency-Key", "order-1"}, c.header...)...)
		if status != c.status {
			t.Errorf("%s %.20q: %d %s, want %d", c.path, c.header, status, text, c.status)
		}
	}
	if n := calls.Load(); n != 3 {
		t.Errorf("the upstream was called %d times, want 3", n)
	}
}

// TestAVerifiedCallerGetsTheReplayWhateverItsToken: two tokens of one caller are the same
// caller.
func TestAVerifiedCallerGetsTheReplayWhateverItsToken(t *testing.T) {
	up, calls := counting(t)
	first, sum1 := auth.NewToken()
	renewed, sum2 := auth.NewToken()
	s := start(t, write(t, "store: {url: 'memory:'}\nauth:\n  tokens:\n    - {name: old, principal: alice, sha256: "+sum1+"}\n    - {name: new, principal: alice, sha256: "+sum2+"}\n"+
		"routes:\n  - {match: 'POST /orders', upstream: "+up+"}\n"))
	for _, token := range []string{first, renewed} {
		status, _, text := do(t, "POST", s.data("/orders"), "{}", "Idempotency-Key", unguessable, "Authorization", "Bearer "+token)
		if status != 201 || text != "ord_1" {
			t.Error(status, text)
		}
	}
	if n := calls.Load(); n != 1 {
		t.Errorf("the upstream was called %d times, want 1", n)
	}
}

func TestScopesOfARoute(t *testing.T) {
	up, calls := counting(t)
	s := start(t, write(t, "store: {url: 'memory:'}\nroutes:\n  - {match: 'POST /orders/{id}', upstream: "+up+", scope_headers: [X-Account, ':path'], credential: Authorization}\n"))
	for i, c := range []struct{ path, account, want string }{
		{"/orders/1", "a", "ord_1"}, {"/orders/1", "b", "ord_2"}, {"/orders/2", "a", "ord_3"}, {"/orders/1", "a", "ord_1"},
	} {
		if status, _, text := do(t, "POST", s.data(c.path), "{}", "Idempotency-Key", "order-1", "Authorization", "Bearer x", "X-Account", c.account); status != 201 || text != c.want {
			t.Errorf("%d: %d %s, want %s", i, status, text, c.want)
		}
	}
	if n := calls.Load(); n != 3 {
		t.Errorf("the upstream was called %d times, want 3", n)
	}
}
