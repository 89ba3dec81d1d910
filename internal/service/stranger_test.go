package service_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

// TestWhatAStrangerHolds holds what SECURITY.md says of "A held key": "Its owner is refused
// until somebody settles it", and "`held unverified` finds them".
func TestWhatAStrangerHolds(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("drop") { // what a firewall doesn't like
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(http.StatusCreated)
	}))
	t.Cleanup(up.Close)
	s := start(t, write(t, fmt.Sprintf("store: {url: 'memory:'}\noperations: [{name: pay}]\nroutes: [{match: POST /pay, upstream: '%s', operation: pay}]\n", up.URL)))
	const key = "invoice-2026-11-23-000042"
	send := func(path, key, who string) int {
		status, _, _ := do(t, "POST", s.data(path), "{}", "Idempotency-Key", key, "Authorization", "Bearer "+who)
		return status
	}
	// With a key that can be guessed, callers are apart.
	if a, b := send("/pay?drop", "order-1", "made-up"), send("/pay", "order-1", "owner"); a < 500 || b != 201 {
		t.Fatal(a, b)
	}
	if a, b := send("/pay?drop", key, "made-up"), send("/pay", key, "owner"); a < 500 || b != 409 {
		t.Fatal(a, b)
	}
	find := func(q string) (names []string) {
		_, _, text := do(t, "GET", s.admin("/v1/records?q="+url.QueryEscape(q)), "")
		for _, name := range []string{key, "order-1"} {
			if strings.Contains(text, `"`+name+`"`) {
				names = append(names, name)
			}
		}
		return names
	}
	for q, want := range map[string]string{"held unverified": "[" + key + "]", "held -unverified": "[order-1]", "held": "[" + key + " order-1]"} {
		if got := fmt.Sprint(find(q)); got != want {
			t.Errorf("%s finds %s, want %s", q, got, want)
		}
	}
	_, _, text := do(t, "GET", s.admin("/v1/records?q="+url.QueryEscape("held unverified")), "")
	_, id, _ := strings.Cut(text, `"id":"`)
	id, _, _ = strings.Cut(id, `"`)
	status, _, text := do(t, "POST", s.admin("/v1/records/"+id+"/settle"), `{"outcome":"aborted","reason":"the firewall has dropped it"}`, "Content-Type", "application/json")
	if status != 200 {
		t.Fatal(status, text)
	}
	if got := send("/pay", key, "owner"); got != 201 {
		t.Errorf("after it was settled as aborted, the owner got %d", got)
	}
}
