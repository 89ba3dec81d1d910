package mcp_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/mcp"
	"github.com/semelhq/semel/door/semelhttp/semelhttptest"
	"github.com/semelhq/semel/internal/jsonscan"
	"github.com/semelhq/semel/internal/rig/clause"
)

// TestConfirmation: a call runs when a person has confirmed it: once, by this caller, for this tool
// and these arguments, while the token is good.
func TestConfirmation(t *testing.T) {
	clause.Proves(t, "IDS-X.1", "IDS-X.2", "IDS-X.3")
	const elicits = `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}`
	confirming := semel.Operation{Name: "payments", Confirmation: &semel.ConfirmationPolicy{}}
	prepare := func(t *testing.T) *world {
		return open(t, mcp.GatewayOptions{Echo: -1, Tools: map[string]mcp.Tool{
			"pay": {Operation: confirming}, "buy": {Operation: confirming}, "refund": {Operation: confirming, Fields: []string{"/order_id"}},
		}})
	}
	// A client that can ask: it repeats the call with the state and the person's answer.
	ask := func(w *world, tool, arguments, more, meta string, header ...string) *answer {
		id := fmt.Sprint(ids.Add(1))
		raw := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":%q,"arguments":%s%s,"_meta":{%s%s}}}`, id, tool, arguments, more, meta, elicits)
		a := w.post(modern, raw, append([]string{"Mcp-Name", tool}, header...)...)
		if a.id != id {
			t.Errorf("asked under %s: %s", id, a.text)
		}
		return a
	}
	accept := func(state any, action string) string {
		return fmt.Sprintf(`,"requestState":%q,"inputResponses":{"semel_confirmation":{"action":%q,"content":{}}}`, state, action)
	}
	for name, c := range map[string]struct{ tool, meta string }{
		"no key": {"pay", ""}, "a key": {"pay", `"idempotency-key":"k-1",`}, "fields": {"refund", ""},
	} {
		t.Run("elicitation, "+name, func(t *testing.T) {
			w := prepare(t)
			const arguments = `{"order_id":"o-1"}`
			asked := ask(w, c.tool, arguments, "", c.meta)
			question := member(asked.result, "inputRequests", "semel_confirmation")
			message, _ := member(question, "params", "message").(string)
			if asked.result["resultType"] != "input_required" || member(question, "method") != "elicitation/create" || !strings.Contains(message, c.tool) || !strings.Contains(message, arguments) || w.runs.Load() != 0 {
				t.Fatalf("%s", asked.text)
			}
			state := asked.result["requestState"]
			for what, got := range map[string]*answer{
				"declined":         ask(w, c.tool, arguments, accept(state, "decline"), c.meta),
				"other arguments":  ask(w, c.tool, `{"order_id":"o-2"}`, accept(state, "accept"), c.meta),
				"another tool":     ask(w, "buy", arguments, accept(state, "accept"), c.meta),
				"another caller":   ask(w, c.tool, arguments, accept(state, "accept"), c.meta, semelhttptest.CallerHeader, "eve"),
				"a state of a fan": ask(w, c.tool, arguments, accept("semel-confirm-1:x", "accept"), c.meta),
			} {
				if (got.code != "confirmation_refused" || got.result["isError"] != true) && got.code != "conflict" || w.runs.Load() != 0 {
					t.Errorf("%s: %s", what, got.text)
				}
			}
			for i := range 3 {
				got := ask(w, c.tool, arguments, accept(state, "accept"), c.meta)
				if got.said() != "run 1" || got.replayed() != (i > 0) || w.runs.Load() != 1 {
					t.Errorf("%d: %s", i, got.text)
				}
			}
			// An equal call without a key is another one, which a person confirms, too.
			if got := ask(w, c.tool, arguments, "", c.meta); (got.result["resultType"] == "input_required") != (name == "no key") {
				t.Errorf("%s", got.text)
			}
		})
	}
	t.Run("nothing of it is sent on", func(t *testing.T) {
		w := prepare(t)
		w.answer = echoParams
		state := ask(w, "pay", `{"a":1}`, "", "").result["requestState"]
		if got := ask(w, "pay", `{"a":1}`, accept(state, "accept"), ""); got.said() != "arguments name" {
			t.Errorf("%s", got.text)
		}
	})
	t.Run("expired", func(t *testing.T) {
		w := prepare(t)
		state := ask(w, "pay", `{}`, "", "").result["requestState"]
		w.Store.Advance(semel.MaxConfirmationTTL + time.Second)
		if got := ask(w, "pay", `{}`, accept(state, "accept"), ""); got.code != "confirmation_refused" || w.runs.Load() != 0 {
			t.Errorf("%s", got.text)
		}
	})
	for _, v := range all {
		t.Run("a client that can't ask, "+string(v), func(t *testing.T) {
			w := prepare(t)
			_, first := w.call(v, "pay", `{}`, "", "")
			token, _ := member(first.result, "_meta", "io.github.semelhq/confirm").(string)
			shown := string(jsonscan.Without([]byte(first.text), "result", "_meta"))
			if first.code != "confirmation_required" || first.result["isError"] != true || token == "" || strings.Contains(shown, token) || !strings.Contains(first.said(), "ask the person") {
				t.Fatalf("%s", first.text)
			}
			confirm := fmt.Sprintf(`"io.github.semelhq/confirm":%q`, token)
			if _, got := w.call(v, "pay", `{"a":1}`, "", confirm); got.code != "conflict" || w.runs.Load() != 0 {
				t.Errorf("%s", got.text)
			}
			for i := range 2 {
				if _, got := w.call(v, "pay", `{}`, "", confirm); got.said() != "run 1" || got.replayed() != (i > 0) {
					t.Errorf("%s", got.text)
				}
			}
		})
	}
}
