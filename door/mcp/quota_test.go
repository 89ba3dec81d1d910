package mcp_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/mcp"
	"github.com/semelhq/semel/door/semelhttp/semelhttptest"
	"github.com/semelhq/semel/store"
)

// beside counts the records of the gateway's own beside those of calls.
func beside(t *testing.T, w *world) (n int) {
	for _, operation := range []string{"semel.mcp.echo", "semel.mcp.state"} {
		page, err := w.Engine.Search(t.Context(), store.Query{Operation: operation})
		if err != nil {
			t.Fatal(err)
		}
		n += len(page.Records)
	}
	return n
}

// TestQuotas: whoever is over a quota leaves nothing in the store, whatever they call.
func TestQuotas(t *testing.T) {
	for name, q := range map[string]semel.Quotas{
		"records": {PrincipalRecords: 3}, "bytes": {PrincipalBytes: 1500},
		"records of the tenant": {TenantRecords: 3}, "bytes of the tenant": {TenantBytes: 1500},
	} {
		for kind, body := range map[string]func(i int) string{
			"other arguments": func(i int) string {
				_, raw := modern.body("tools/call", fmt.Sprintf(`"name":"pay","arguments":{"a":%d}`, i), "")
				return raw
			},
			"other states": func(i int) string {
				_, raw := modern.body("tools/call", fmt.Sprintf(`"name":"pay","arguments":{},"requestState":"s%d"`, i), fmt.Sprintf(`"idempotency-key":"key-%d"`, i))
				return raw
			},
			"other states, no key": func(i int) string {
				_, raw := modern.body("tools/call", fmt.Sprintf(`"name":"pay","arguments":{},"requestState":"s%d"`, i), "")
				return raw
			},
		} {
			t.Run(name+", "+kind, func(t *testing.T) {
				w := behind(t, newServer(), mcp.GatewayOptions{}, semel.Options{Quotas: q})
				const most = 10
				for i := range 50 {
					got := w.post(modern, body(i), "Mcp-Name", "pay")
					switch throttled := got.code == "throttled"; {
					case throttled && (got.header.Get("Retry-After") == "" || got.action != store.ActionWait || got.header.Get("Semel-Effect") != "none"):
						t.Errorf("%v %s", got.header, got.text)
					case !throttled && (i > most || got.result == nil), throttled && i == 0:
						t.Fatalf("%d: %s", i, got.text)
					}
				}
				if n := beside(t, w); n == 0 || n > most {
					t.Errorf("%d records beside those of %d calls", n, w.runs.Load())
				}
				// What began before is still answered, by its key or as an echo.
				if again := w.post(modern, body(0), "Mcp-Name", "pay"); again.said() != "run 1" || !again.replayed() {
					t.Errorf("%s", again.text)
				}
			})
		}
	}
}

// TestCallThatNeverBegan: a call that the engine refuses leaves no entry among those that may be
// repeated.
func TestCallThatNeverBegan(t *testing.T) {
	op := operation
	op.Authorize = func(_ context.Context, call semel.Call, _ semel.Record) error {
		if call.Principal == "eve" {
			return &semel.Error{Code: semel.CodeForbidden}
		}
		return nil
	}
	// The quota is used up by the entry itself.
	w := behind(t, newServer(), mcp.GatewayOptions{Operation: op}, semel.Options{Quotas: semel.Quotas{PrincipalBytes: 300}})
	for who, code := range map[string]string{"tester": "throttled", "eve": "forbidden"} {
		if got := w.pay(nil, `{}`, semelhttptest.CallerHeader, who); got.code != code || w.runs.Load() != 0 {
			t.Errorf("%s: %s", who, got.text)
		}
	}
	deadline := time.Now().Add(10 * time.Second)
	for cells(t, w) > 0 && time.Now().Before(deadline) { // it is removed beside the answer
	}
	if n := cells(t, w); n != 0 {
		t.Errorf("%d are left", n)
	}
}
