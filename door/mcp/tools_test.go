package mcp_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/mcp"
)

// TestHints: a tool whose repetition the gateway can always tell is idempotent by its
// description, and nothing else of the list changes.
func TestHints(t *testing.T) {
	long := semel.Operation{Name: "long", Window: mcp.HintWindow}
	fields := mcp.Tool{Fields: []string{"/order_id"}}
	const list = `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`
	as := func(changes ...string) string { return strings.NewReplacer(changes...).Replace(tools) }
	refund := []string{`{"name":"refund",`, `{"annotations":{"idempotentHint":true},"name":"refund",`}
	pay := []string{`"idempotentHint" :false`, `"idempotentHint" :true`}
	for _, c := range []struct {
		name  string
		opts  mcp.GatewayOptions
		tools string
	}{
		{"nothing is declared", mcp.GatewayOptions{Operation: semel.Operation{Name: "short"}}, tools},
		{"a required key", mcp.GatewayOptions{Operation: long}, as(pay...)},
		{"a required key, and fields", mcp.GatewayOptions{Operation: long, Tools: map[string]mcp.Tool{"refund": fields}}, as(append(refund, pay...)...)},
		{"fields of a tool with annotations", mcp.GatewayOptions{Operation: long, Tools: map[string]mcp.Tool{"search": fields, "pay": {NoHint: true}}}, as(`{"readOnlyHint"`, `{"idempotentHint":true,"readOnlyHint"`)},
		{"another key that isn't required", mcp.GatewayOptions{Operation: long, Tools: map[string]mcp.Tool{"pay": {KeyParameter: "token"}}}, tools},
		{"no hint, and only reading", mcp.GatewayOptions{Operation: long, Tools: map[string]mcp.Tool{"pay": {NoHint: true}, "refund": {Fields: fields.Fields, ReadOnly: true}}}, tools},
		{"calls that are forgotten too soon", mcp.GatewayOptions{Operation: semel.Operation{Name: "short", Window: mcp.HintWindow - 1}, Tools: map[string]mcp.Tool{"refund": fields}}, tools},
		{"calls that are known for longer than their results", mcp.GatewayOptions{Operation: semel.Operation{Name: "known", Window: time.Hour, Remember: mcp.HintWindow}, Tools: map[string]mcp.Tool{"refund": fields}}, as(append(refund, pay...)...)},
		{"calls that are known too briefly", mcp.GatewayOptions{Operation: semel.Operation{Name: "known", Window: time.Hour, Remember: mcp.HintWindow - 1}, Tools: map[string]mcp.Tool{"refund": fields}}, tools},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := open(t, c.opts)
			if got, want := w.post(middle, list), `{"jsonrpc": "2.0", "id": 1, "result": `+c.tools+`}`; got.text != want {
				t.Errorf("the client got\n%s\nand not\n%s", got.text, want)
			}
		})
	}
	t.Run("in a stream", func(t *testing.T) {
		upstream := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, ": hello\n\nid: 7\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\ndata: \"result\":{\"tools\":[{\"name\":\"refund\"}]}}\n\n")
		})
		g, err := mcp.NewGateway(open(t, mcp.GatewayOptions{}).Guard, mcp.GatewayOptions{Operation: long, Upstream: urlOf(t, listen(t, upstream)), Tools: map[string]mcp.Tool{"refund": fields}})
		if err != nil {
			t.Fatal(err)
		}
		w := &world{t: t, url: listen(t, g)}
		want := ": hello\n\nid: 7\ndata: {\"jsonrpc\":\"2.0\",\"id\":1, \"result\":{\"tools\":[{\"annotations\":{\"idempotentHint\":true},\"name\":\"refund\"}]}}\n\n"
		if got := w.post(middle, list); got.text != want {
			t.Errorf("%q", got.text)
		}
	})
}

// TestToolsOfOneOperation: a tool without an operation of its own has that of the gateway, also if
// that asks the server what became of its calls.
func TestToolsOfOneOperation(t *testing.T) {
	op := semel.Operation{Name: "asked", Reconcile: func(context.Context, semel.Record) (semel.Settlement, error) { return semel.Settlement{}, nil }}
	w := open(t, mcp.GatewayOptions{Operation: op, Tools: map[string]mcp.Tool{"refund": {Fields: []string{"/order_id"}}, "pay": {NoHint: true}}})
	w.keyed(modern, "refund", "k", `{"order_id":"o"}`)
	if n := w.runs.Load(); n != 1 {
		t.Errorf("%d runs", n)
	}
}
