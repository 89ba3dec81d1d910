package mcp_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/mcp"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
)

// TestReconcileByTool: a call whose outcome nobody knows is settled by what a tool that only reads
// says, where that proves something.
func TestReconcileByTool(t *testing.T) {
	clause.Proves(t, "IDS-XI.S4")
	reconcile := &mcp.Reconcile{
		Tool: "get_refund", Arguments: map[string]string{"id": "/order/id", "kind": "/kind", "line": "/lines/1"},
		Done:   []string{"json:/structuredContent/status=refunded", "json:/structuredContent/status=settled"},
		Absent: []string{"json:/structuredContent/found=false", "json:/content/0/text=No such *"}, AbsentAfter: time.Hour,
		Header: http.Header{"Authorization": {"Bearer reader"}},
	}
	refunded := `"result":{"content":[{"type":"text","text":"refund r-1"}],"structuredContent":{"status":"refunded"}}`
	for _, c := range []struct {
		name, said string
		status     int
		after      time.Duration
		outcome    store.Disposition // zero: it stays held
	}{
		{"done", refunded, 200, 0, semel.DispositionCompleted},
		{"not done yet", strings.Replace(refunded, "refunded", "pending", 1), 200, 0, 0},
		{"done, by a tool that failed", strings.Replace(refunded, `{"content"`, `{"isError":true,"content"`, 1), 200, 0, 0},
		{"absent, too early", `"result":{"content":[],"structuredContent":{"found":false}}`, 200, time.Hour - time.Minute, 0},
		{"absent", `"result":{"content":[],"structuredContent":{"found":false}}`, 200, time.Hour + time.Minute, semel.DispositionAborted},
		{"absent, by a tool that failed", `"result":{"content":[{"type":"text","text":"No such refund"}],"isError":true}`, 200, 2 * time.Hour, semel.DispositionAborted},
		{"an error", `"error":{"code":-32602,"message":"No such refund"}`, 200, 2 * time.Hour, 0},
		{"another's answer", refunded + `,"id":"other"`, 200, 0, 0},
		{"something in between", refunded, 503, 0, 0},
		{"nothing", "", 504, 2 * time.Hour, 0},
	} {
		for _, effects := range [][]string{nil, {}} {
			t.Run(fmt.Sprintf("%s, ledger %t", c.name, effects != nil), func(t *testing.T) {
				op := operation
				op.Effects = effects
				w := open(t, mcp.GatewayOptions{Operation: op, Tools: map[string]mcp.Tool{"refund": {Reconcile: reconcile}}})
				lost := true
				w.answer = func(rw http.ResponseWriter, r *http.Request, id string, params object) {
					rw.Header().Set("Content-Type", "application/json")
					switch {
					case params["name"] == "get_refund":
						if r.Header.Get("Authorization") != "Bearer reader" || r.Header.Get("Mcp-Name") != "get_refund" || fmt.Sprint(params["arguments"]) != "map[id:o-1 kind:7 line:b]" {
							t.Errorf("asked %v %v", r.Header, params)
						}
						rw.WriteHeader(c.status)
						if !strings.Contains(c.said, `"id"`) {
							fmt.Fprintf(rw, `{"jsonrpc":"2.0","id":%s,%s}`, id, c.said)
							return
						}
						fmt.Fprintf(rw, `{"jsonrpc":"2.0",%s}`, c.said)
					case lost:
						rw.WriteHeader(http.StatusBadGateway)
					default:
						fmt.Fprintf(rw, `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"again"}]}}`, id)
					}
				}
				const arguments = `{"order":{"id":"o-1"},"kind":7,"lines":["a","b"]}`
				if got := w.keyed(modern, "refund", "k-1", arguments); got.code != "held" {
					t.Fatalf("%s", got.text)
				}
				w.Store.Advance(c.after)
				page, err := w.Engine.Search(t.Context(), store.Query{Operation: op.Name})
				if err != nil || len(page.Records) != 1 {
					t.Fatal(page, err)
				}
				registered, _ := w.Engine.Internal().Operation(op.Name)
				page.Records[0].UpdatedAt = page.Records[0].UpdatedAt.Add(c.after) // the engine writes a record before it asks
				s, err := registered.Reconcile(t.Context(), page.Records[0])
				if s.Outcome != c.outcome {
					t.Fatalf("%+v, %v", s, err)
				}
				if c.outcome != 0 {
					rec, err := w.Engine.Settle(t.Context(), page.Records[0].ID, s, "asked")
					if err != nil {
						t.Fatal(err)
					}
					if effects != nil && (len(rec.Effects) != 1 || rec.Effects[0].State == store.EffectStarted) {
						t.Errorf("%+v", rec.Effects)
					}
				}
				lost = false
				got := w.keyed(modern, "refund", "k-1", arguments)
				switch c.outcome {
				case semel.DispositionCompleted:
					if !got.replayed() || !strings.Contains(got.text, "refund r-1") || !strings.Contains(got.said(), "get_refund") {
						t.Errorf("%s", got.text)
					}
				case semel.DispositionAborted:
					if got.said() != "again" {
						t.Errorf("%s", got.text)
					}
				default:
					if got.code != "held" {
						t.Errorf("%s", got.text)
					}
				}
			})
		}
	}
	t.Run("settings", func(t *testing.T) {
		for _, r := range []mcp.Reconcile{
			{}, {Tool: "x"}, {Tool: "x", Done: []string{"status=done"}}, {Tool: "x", Done: []string{"header:Authorization=x"}}, {Tool: "x", Done: []string{"json:status=done"}},
			{Tool: "x", Absent: []string{"json:/found=false"}}, {Tool: "x", Done: []string{"json:/a=b"}, Arguments: map[string]string{"id": "order_id"}},
		} {
			w := open(t, mcp.GatewayOptions{})
			_, err := mcp.NewGateway(w.Guard, mcp.GatewayOptions{Operation: operation, Upstream: w.request(modern, "").URL, Tools: map[string]mcp.Tool{"refund": {Reconcile: &r}}})
			if err == nil || !strings.Contains(err.Error(), "refund") {
				t.Errorf("%+v: %v", r, err)
			}
		}
	})
	t.Run("a call that lacks an argument", func(t *testing.T) {
		w := open(t, mcp.GatewayOptions{Tools: map[string]mcp.Tool{"refund": {Reconcile: reconcile}}})
		w.answer = func(rw http.ResponseWriter, _ *http.Request, _ string, _ object) {
			rw.WriteHeader(http.StatusBadGateway)
		}
		w.keyed(modern, "refund", "k-1", `{}`)
		page, _ := w.Engine.Search(t.Context(), store.Query{Operation: operation.Name})
		registered, _ := w.Engine.Internal().Operation(operation.Name)
		if s, err := registered.Reconcile(t.Context(), page.Records[0]); err == nil || s.Outcome != 0 || w.runs.Load() != 1 {
			t.Errorf("%+v, %v", s, err)
		}
	})
}

// TestTheClaimSaysWhetherThereIsALedger: if a reload has declared one since the gateway was made,
// the claim has promised it, and a call that nobody answered isn't sent again.
func TestTheClaimSaysWhetherThereIsALedger(t *testing.T) {
	w := open(t, mcp.GatewayOptions{})
	sent := 0
	w.answer = func(rw http.ResponseWriter, _ *http.Request, _ string, _ object) {
		sent++
		rw.WriteHeader(http.StatusBadGateway)
	}
	op := operation
	op.Effects = []string{mcp.CallEffect}
	if err := w.Engine.Register(op); err != nil {
		t.Fatal(err)
	}
	w.keyed(modern, "pay", "k-1", `{}`)
	if got := w.keyed(modern, "pay", "k-1", `{}`); got.code != "held" || sent != 1 {
		t.Errorf("it was sent %d times: %s", sent, got.text)
	}
}
