package service_test

import (
	"encoding/json"
	"github.com/semelhq/semel/internal/rig/stage"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// explained is what the tests look at of an explanation.
type explained struct {
	Outcome, Why, Code, Rule, Operation, Upstream string
	Key                                           string `json:"idempotency_key"`
	KeyFrom                                       string `json:"key_from"`
	Rules                                         []struct {
		Rule, Match, Why string
		Matches          bool
	}
	Record *struct {
		Status      string
		SamePayload bool `json:"same_payload"`
	}
}

// post is a request with a form, and a key unless that is empty.
func post(address, body, key string) string {
	text := "POST http://" + address + "\nContent-Type: application/x-www-form-urlencoded\n"
	if key != "" {
		text += "Idempotency-Key: " + key + "\n"
	}
	return text + "\n" + body
}

// TestARequestIsExplainedAsItWouldBeServed: the rules that serve requests say which of them
// takes one and why the others don't, and nothing is done.
func TestARequestIsExplainedAsItWouldBeServed(t *testing.T) {
	var hits atomic.Int64
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		hits.Add(1)
		w.WriteHeader(http.StatusCreated)
	}))
	defer upstream.Close()
	s := start(t, write(t, strings.ReplaceAll(`
store: {url: 'memory:'}
operations: [{name: pay}, {name: order}, {name: special}]
routes:
  - {match: 'POST /pay/{id}', upstream: UPSTREAM, operation: pay, key: optional}
  - {match: 'POST /pay/special', upstream: UPSTREAM, operation: special, key: required}
  - {match: 'POST shop.example/orders', upstream: UPSTREAM, operation: order, key_from: ['json:/order/id']}
  - {match: '/old/', upstream: UPSTREAM, operation: pay, mode: 'off'}
`, "UPSTREAM", upstream.URL)))
	explain := func(request string) (x explained) {
		t.Helper()
		body, err := json.Marshal(map[string]string{"request": request})
		if err != nil {
			t.Fatal(err)
		}
		a, err := stage.Direct.Post(s.admin("/v1/explain"), "application/json", strings.NewReader(string(body)))
		if err != nil {
			t.Fatal(err)
		}
		defer a.Body.Close()
		if err := json.NewDecoder(a.Body).Decode(&x); err != nil || a.StatusCode != http.StatusOK {
			t.Fatalf("%s: %d, %v", request, a.StatusCode, err)
		}
		return x
	}
	for _, test := range []struct{ request, outcome, rule, operation, key, from, why string }{
		{post("h/pay/7", "a", "k"), "guarded", "routes[0]", "pay", "k", "header:Idempotency-Key", "has a key"},
		{post("h/pay/7", "a", ""), "passed", "routes[0]", "pay", "", "", "has none"},
		{post("h/pay/special", "a", "k"), "guarded", "routes[1]", "special", "k", "header:Idempotency-Key", "has a key"},
		{post("h/pay/special", "a", ""), "refused", "routes[1]", "special", "", "", "Idempotency-Key"},
		{post("h/pay/special", "a", "a b"), "refused", "routes[1]", "special", "", "", "character"},
		{"POST http://shop.example/orders\nContent-Type: application/json\n\n" + `{"order":{"id":"o1"}}`, "guarded", "routes[2]", "order", "o1", "json:/order/id", "has a key"},
		{post("h/pay/7/", "a", "k"), "nothing", "", "", "", "", "404"},
		{post("h/old/x", "a", "k"), "passed", "routes[3]", "pay", "", "", "mode of the route is off"},
		{"GET http://h/pay/7\nIdempotency-Key: k", "nothing", "", "", "", "", "404"},
		{post("h/v1/operations/pay/executions", "a", "k"), "api", "api", "pay", "k", "header:Idempotency-Key", "begins the call"},
		{"GET http://h/v1/records", "api", "api", "", "", "", "begins no call"},
		{"GET http://h/semel/status/abc", "door", "service", "", "", "", "became of a call"},
	} {
		x := explain(test.request)
		if x.Outcome != test.outcome || x.Rule != test.rule || x.Operation != test.operation || x.Key != test.key || x.KeyFrom != test.from || !strings.Contains(x.Why, test.why) {
			t.Errorf("%s: %+v, want %+v", test.request, x, test)
		}
		chosen := 0
		for _, rule := range x.Rules {
			if rule.Why == "" {
				t.Errorf("%s: %s says no reason", test.request, rule.Rule)
			}
			if rule.Matches {
				chosen++
			}
		}
		if len(x.Rules) != 7 || (chosen == 1) != (test.rule != "") {
			t.Errorf("%s: rules %+v", test.request, x.Rules)
		}
	}
	reasons := map[string]string{}
	for _, rule := range explain("PUT http://h/pay/special\n\na").Rules {
		reasons[rule.Rule] = rule.Why
	}
	for rule, want := range map[string]string{
		"routes[0]": "The method is PUT, and it matches POST.", "routes[2]": "The path has /pay where it has /orders.", "routes[3]": "The path has /pay where it has /old.",
	} {
		if reasons[rule] != want {
			t.Errorf("%s: %q, want %q", rule, reasons[rule], want)
		}
	}
	if x := explain(post("h/pay/special", "a", "k")); x.Rules[2].Why != "It matches too, but another route does that is more specific." {
		t.Errorf("the less specific route says %q", x.Rules[2].Why)
	}
	if n := hits.Load(); n != 0 {
		t.Errorf("explaining made %d requests", n)
	}
	// What it says is what happens.
	send := func(body string) {
		r, err := http.NewRequest(http.MethodPost, s.data("/pay/7"), strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Idempotency-Key", "k")
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		if _, err := stage.Direct.Do(r); err != nil {
			t.Fatal(err)
		}
	}
	if x := explain(post(strings.TrimPrefix(s.data("/pay/7"), "http://"), "a=1", "k")); x.Record != nil {
		t.Errorf("before: %+v", x.Record)
	}
	send("a=1")
	for body, same := range map[string]bool{"a=1": true, "a=2": false} {
		if x := explain(post(strings.TrimPrefix(s.data("/pay/7"), "http://"), body, "k")); x.Record == nil || x.Record.SamePayload != same || x.Record.Status != "completed" {
			t.Errorf("%s meets %+v", body, x.Record)
		}
	}
}
