package upgrade

import (
	"context"
	"encoding/json"
	"fmt"
	"github.com/semelhq/semel/store"
	"net/url"
	"strings"
	"testing"
	"time"
)

// call is one call that the earlier program brings into a state.
type call struct {
	name string
	// make brings it about.
	make func(t *testing.T, n *node)
	// ask delivers it again.
	ask func(n *node) answer
	// path is what the upstream counts; empty where callers do the work themselves.
	path string
	// runs says that it may run again: nothing happened, or its policy says so. A sweep sees
	// that where it is abandoned.
	runs, abandoned bool
	// key is under which a list has it, and held says that it must be in that of held calls.
	operation, key string
	held           bool
	// last calls are made when all others are: they keep running. Those that a node works at
	// when it stops are cut off, and held from then on.
	last, cutOff bool
}

// begin delivers a call by the execution API.
func begin(n *node, operation, key, body string) answer {
	return n.send(request{path: "/v1/operations/" + operation + "/executions", body: body, header: map[string]string{"Idempotency-Key": key}})
}

// execution begins a call and returns the name of its attempt.
func execution(t *testing.T, n *node, operation, key, body string) string {
	t.Helper()
	a := begin(n, operation, key, body)
	var begun struct{ Execution string }
	if err := json.Unmarshal(a.raw, &begun); err != nil || begun.Execution == "" {
		t.Fatalf("%s doesn't begin: %d %s", key, a.Status, a.raw)
	}
	return begun.Execution
}

// end tells what became of an attempt.
func end(t *testing.T, n *node, execution, how, body string) {
	t.Helper()
	if a := n.send(request{path: "/v1/executions/" + execution + "/" + how, body: body}); a.Status >= 300 {
		t.Fatalf("%s: %d %s", how, a.Status, a.raw)
	}
}

const payload = `{"payload":{"amount":12}}`

// byAPI are the calls of the execution API. Their callers do the work.
func byAPI(numbers bool) []call {
	const (
		completed = `{"result":{"n":1}}`
		no        = `{"error":{"code":"no","message":"no"}}`
		lost      = `{"reason":"the gateway said 504"}`
		charge    = `{"name":"charge"}`
	)
	ends := func(how, body string) func(t *testing.T, n *node, x string) {
		return func(t *testing.T, n *node, x string) { end(t, n, x, how, body) }
	}
	silent := func(*testing.T, *node, string) {}
	list := []struct {
		name, operation string
		end             func(t *testing.T, n *node, x string)
		runs, abandoned bool
		held, last      bool
	}{
		{name: "completed", operation: "hold", end: ends("complete", completed)},
		{name: "completed without a result", operation: "hold", end: ends("complete", `{}`)},
		{name: "rejected", operation: "hold", end: ends("reject", no)},
		{name: "failed", operation: "hold", end: ends("fail", no)},
		{name: "failed, to be retried", operation: "again", end: ends("fail", no), runs: true},
		{name: "aborted", operation: "hold", end: ends("abort", `{}`), runs: true},
		{name: "held by its caller", operation: "hold", end: ends("hold", lost), held: true},
		{name: "held by its caller, though others run again", operation: "retry", end: ends("hold", lost), held: true},
		{name: "silent", operation: "hold", end: silent, held: true},
		{name: "silent, to be retried", operation: "retry", end: silent, runs: true, abandoned: true},
		{name: "effect begun, silent", operation: "ledger", end: ends("effects", charge), held: true},
		{name: "effect begun, held, though others run again", operation: "ledger.retry", end: func(t *testing.T, n *node, x string) {
			end(t, n, x, "effects", charge)
			end(t, n, x, "hold", lost)
		}, held: true},
		{name: "effect confirmed, silent", operation: "ledger", end: func(t *testing.T, n *node, x string) {
			end(t, n, x, "effects", charge)
			end(t, n, x, "effects/settle", `{"name":"charge","state":"confirmed","result":{"c":1}}`)
		}, runs: true, abandoned: true},
		{name: "effect confirmed, completed", operation: "ledger", end: func(t *testing.T, n *node, x string) {
			end(t, n, x, "effects", charge)
			end(t, n, x, "effects/settle", `{"name":"charge","state":"confirmed","result":{"c":1}}`)
			end(t, n, x, "complete", completed)
		}},
		{name: "settled", operation: "hold", end: func(t *testing.T, n *node, x string) {
			end(t, n, x, "hold", lost)
			settle(t, n, x)
		}},
		{name: "message delivered", operation: "hold", end: ends("complete", `{"result":{"n":1},"messages":[{"name":"m","destination":"takes","payload":{}}]}`)},
		{name: "message parked", operation: "hold", end: ends("complete", `{"result":{"n":1},"messages":[{"name":"m","destination":"refuses","payload":{}}]}`)},
		{name: "in flight", operation: "long", end: silent, last: true},
	}
	calls := make([]call, 0, len(list)+3)
	for _, c := range list {
		key := strings.NewReplacer(" ", "-", ",", "").Replace(c.name)
		calls = append(calls, call{
			name: "API, " + c.name, operation: c.operation, key: key, runs: c.runs, abandoned: c.abandoned, held: c.held, last: c.last,
			make: func(t *testing.T, n *node) { c.end(t, n, execution(t, n, c.operation, key, payload)) },
			ask:  func(n *node) answer { return begin(n, c.operation, key, payload) },
		})
	}
	if numbers {
		calls = append(calls, numbered()...)
	}
	return calls
}

// settle ends a held call as an operator does.
func settle(t *testing.T, n *node, execution string) {
	t.Helper()
	record, _, _ := strings.Cut(execution, ".")
	a := n.send(request{admin: true, path: "/v1/records/" + record + "/settle", body: `{"outcome":"completed","result":{"s":1},"reason":"looked it up"}`})
	if a.Status >= 300 {
		t.Fatalf("settle: %d %s", a.Status, a.raw)
	}
}

// numbered are sequences: their earlier numbers, and what became of the newest.
func numbered() (calls []call) {
	body := func(number int) string { return fmt.Sprintf(`{"payload":{"step":%d},"sequence":%d}`, number, number) }
	for newest, c := range map[string]struct {
		end  func(t *testing.T, n *node, x string)
		runs bool
		held bool
		last bool
	}{
		"completed": {end: func(t *testing.T, n *node, x string) { end(t, n, x, "complete", `{"result":{"n":3}}`) }},
		"aborted":   {end: func(t *testing.T, n *node, x string) { end(t, n, x, "abort", `{}`) }, runs: true},
		"held":      {end: func(t *testing.T, n *node, x string) { end(t, n, x, "hold", `{"reason":"lost"}`) }, held: true},
		"running":   {end: func(*testing.T, *node, string) {}, last: true},
	} {
		key := "sequence-" + newest
		for number := 1; number <= 3; number++ {
			one := call{
				name: fmt.Sprintf("API, number %d of 3, of which the newest is %s", number, newest),
				ask:  func(n *node) answer { return begin(n, "numbers", key, body(number)) },
			}
			if number == 3 {
				one.operation, one.key, one.runs, one.held, one.last = "numbers", key, c.runs, c.held, c.last
				one.make = func(t *testing.T, n *node) {
					for k := 1; k <= 3; k++ {
						x := execution(t, n, "numbers", key, body(k))
						if k == 3 {
							c.end(t, n, x)
							break
						}
						end(t, n, x, "complete", fmt.Sprintf(`{"result":{"n":%d}}`, k))
					}
				}
			}
			calls = append(calls, one)
		}
	}
	return calls
}

// listed returns what a node lists for a query: operations and keys, with their states. It has
// one of each, because this program keeps another record of an activity beside that of each
// inbox; but it counts the numbers of a sequence, which earlier programs listed under a key with
// the number, but for the newest.
func listed(n *node, query string) map[string]int {
	n.t.Helper()
	found := map[string]int{}
	for cursor := ""; ; {
		a := n.send(request{admin: true, path: "/v1/records?limit=100&q=" + url.QueryEscape(query) + "&cursor=" + cursor})
		var page struct {
			Records []struct {
				Operation string
				Key       string `json:"idempotency_key"`
				State     string `json:"status"`
				Sequence  uint64 `json:"sequence"`
			}
			Next string `json:"next"`
		}
		if err := json.Unmarshal(a.raw, &page); err != nil || a.Status != 200 {
			n.t.Fatalf("list %q: %d %s", query, a.Status, a.raw)
		}
		for _, r := range page.Records {
			if !strings.HasPrefix(r.Key, "msg_") { // deliveries of messages, which only some programs list
				key, _, numbered := strings.Cut(r.Key, store.ScopeMark)
				if name := r.Operation + " " + key + " " + r.State; numbered || r.Sequence != 0 {
					found[name]++
				} else {
					found[name] = 1
				}
			}
		}
		if cursor = page.Next; cursor == "" {
			return found
		}
	}
}

// until waits until something holds, and fails with what stands in its way.
func until(t *testing.T, why func() string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		left := why()
		if left == "" {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatal(left)
		case <-tick.C:
		}
	}
}
