package mcp_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/semelhq/semel/door/mcp"
)

// asks is a server that needs input before each call: it gives out a state, the same one always or
// one for each call, and then does it.
func asks(state func(run int64) string) *server {
	s := newServer()
	s.answer = func(w http.ResponseWriter, r *http.Request, id string, params object) {
		w.Header().Set("Content-Type", "application/json")
		if params["requestState"] == nil {
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"resultType":"input_required","requestState":%q,"inputRequests":{}}}`, id, state(run(r)))
			return
		}
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete","content":[{"type":"text","text":"run %d of %s"}]}}`, id, run(r), params["requestState"])
	}
	return s
}

// TestRounds: a requestState is good for one round, each time that the server gives it out.
func TestRounds(t *testing.T) {
	const yes, no = `{"q":{"action":"accept"}}`, `{"q":{"action":"decline"}}`
	each := func(run int64) string { return fmt.Sprintf("state-%d", run) }
	begin := func(w *world, key string) string {
		w.t.Helper()
		_, a := w.call(modern, "pay", `{"a":1}`, "", key)
		state, _ := a.result["requestState"].(string)
		if a.result["resultType"] != "input_required" || state == "" {
			w.t.Fatalf("%s", a.text)
		}
		return state
	}
	next := func(w *world, arguments, state, responses, key string, header ...string) *answer {
		w.t.Helper()
		id, a := w.call(modern, "pay", arguments, fmt.Sprintf(`"requestState":%q,"inputResponses":%s`, state, responses), key, header...)
		if a.id != id {
			w.t.Errorf("asked under %s: %s", id, a.text)
		}
		return a
	}
	refused := func(a *answer) bool { return a.rpc == -32602 && strings.Contains(a.text, "another round") }

	for _, key := range []string{"", `"idempotency-key":"k-1"`} {
		t.Run("used once, "+key, func(t *testing.T) {
			w := behind(t, asks(each), mcp.GatewayOptions{Tools: map[string]mcp.Tool{}})
			state := begin(w, key)
			var five sync.WaitGroup
			for range 5 {
				five.Go(func() { // the same round again joins the first
					if got := next(w, `{"a":1}`, state, yes, key); key != "" && got.said() != "run 2 of "+state {
						t.Errorf("%s", got.text)
					}
				})
			}
			five.Wait()
			if got := next(w, `{"a":1}`, state, yes, key); got.said() != "run 2 of "+state || !got.replayed() {
				t.Errorf("%s", got.text)
			}
			for what, got := range map[string]*answer{
				"other responses": next(w, `{"a":1}`, state, no, key),
				"other arguments": next(w, `{"a":2}`, state, yes, key),
				"another key":     next(w, `{"a":1}`, state, yes, `"idempotency-key":"k-2"`),
			} {
				if !refused(got) {
					t.Errorf("%s: %s", what, got.text)
				}
			}
			if n := w.runs.Load(); n != 2 {
				t.Errorf("%d runs", n)
			}
		})
	}
	t.Run("a state that is the same for all", func(t *testing.T) {
		w := behind(t, asks(func(int64) string { return "s" }), mcp.GatewayOptions{})
		for i, key := range []string{`"idempotency-key":"k-1"`, `"idempotency-key":"k-2"`} {
			if got := next(w, `{"a":1}`, begin(w, key), yes, key); got.replayed() || got.said() != fmt.Sprintf("run %d of s", 2*i+2) {
				t.Errorf("%s", got.text)
			}
		}
		begin(w, `"idempotency-key":"k-3"`)
		begin(w, `"idempotency-key":"k-4"`)
		for i, key := range []string{`"idempotency-key":"k-3"`, `"idempotency-key":"k-4"`} { // beside each other
			if got := next(w, `{"a":1}`, "s", no, key); got.said() != fmt.Sprintf("run %d of s", 7+i) {
				t.Errorf("%s", got.text)
			}
		}
		begin(w, `"idempotency-key":"k-4"`) // a replay gives out nothing
		if got := next(w, `{"a":1}`, "s", yes, `"idempotency-key":"k-5"`); !refused(got) {
			t.Errorf("%s", got.text)
		}
	})
	t.Run("a state that nobody has seen", func(t *testing.T) {
		w := behind(t, asks(each), mcp.GatewayOptions{})
		if got := next(w, `{}`, "elsewhere", yes, ""); got.said() != "run 1 of elsewhere" {
			t.Errorf("%s", got.text)
		}
		if got := next(w, `{}`, "elsewhere", no, ""); !refused(got) {
			t.Errorf("%s", got.text)
		}
	})
}
