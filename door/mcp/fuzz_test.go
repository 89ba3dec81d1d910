package mcp_test

import (
	"net/http"
	"testing"

	"github.com/semelhq/semel/door/mcp"
	"github.com/semelhq/semel/internal/canon"
	"github.com/semelhq/semel/internal/jsonscan"
)

// FuzzRequest: whatever comes is a request or isn't, without a panic; and a call is the same in
// another spelling, under another id and with another trace.
func FuzzRequest(f *testing.F) {
	for _, v := range all {
		_, raw := v.body("tools/call", `"name":"pay","arguments":{"b":1.0,"a":"x"},"requestState":"s"`, `"idempotency-key":"k-1"`)
		f.Add([]byte(raw), string(v), "pay")
	}
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"é","idempotencyKey":"k","meta":{"idempotency-key":"k"}}}`), "2025-06-18", "=?base64?w6k=?=")
	f.Add([]byte(`[{}]`), "1", "")
	f.Fuzz(func(t *testing.T, raw []byte, version, name string) {
		header := http.Header{"Mcp-Protocol-Version": {version}, "Mcp-Method": {"tools/call"}, "Mcp-Name": {name}}
		call, guarded := mcp.Recognise(raw, header)
		if !guarded {
			return
		}
		if call.Key == "" || call.Fingerprint.IsZero() {
			t.Errorf("%+v", call)
		}
		plain, err := canon.Canonicalize(raw, canon.Exact)
		if err != nil {
			t.Fatalf("%s was read: %v", raw, err)
		}
		id := jsonscan.Member(plain, "id")
		at := jsonscan.Offset(plain, id)
		other := append(append(append([]byte(nil), plain[:at]...), `"another"`...), plain[at+len(id):]...)
		again, guarded := mcp.Recognise(other, header)
		if !guarded || again.Fingerprint != call.Fingerprint || again.Scope != call.Scope {
			t.Errorf("%s and %s", raw, other)
		}
	})
}
