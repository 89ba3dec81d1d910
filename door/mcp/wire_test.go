package mcp_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/semelhq/semel/door/mcp"
	"github.com/semelhq/semel/store"
)

// TestPasses: what isn't a tool call reaches the server, and its answer the client, byte for byte.
func TestPasses(t *testing.T) {
	w := open(t, mcp.GatewayOptions{Path: "/"})
	meta := `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}`
	for _, c := range []struct {
		v    version
		body string
	}{
		{modern, ` { "method" : "resources/read", "jsonrpc":"2.0","params":{"uri":"x:\u0041",` + meta + `},"id":"a" } `},
		{modern, `{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{` + meta + `}}`},
		{modern, `{"jsonrpc":"2.0","method":"notifications/anything","params":{}}`},
		{middle, `{"jsonrpc":"2.0","id":1,"method":"tools/none"}`},
		{middle, `{"jsonrpc":"2.0","method":"notifications/initialized"}`},
		{oldest, `{"jsonrpc":"2.0","id":7,"result":{"roots":[]}}`},
		{oldest, `{"jsonrpc":"2.0","id":"x","error":{"code":-1,"message":"no"}}`},
		{"", `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}`},
	} {
		got := w.post(c.v, c.body, "Mcp-Session-Id", "s-1", "X-Own", "kept", "Mcp-Protocol-Version", string(c.v))
		n := len(w.said)
		if n == 0 || w.said[n-1] != c.body || w.seen[n-1].Header.Get("X-Own") != "kept" || w.seen[n-1].Header.Get("Mcp-Session-Id") != "s-1" || w.seen[n-1].URL.Path != "/mcp" {
			t.Fatalf("%s: the server got %q", c.body, w.said)
		}
		if got.status != http.StatusAccepted || got.text != fmt.Sprintf(` {"echo": %q}`, c.body) || got.header.Get("X-Server") != "plain" {
			t.Errorf("%s: the client got %d %s", c.body, got.status, got.text)
		}
	}
	for _, method := range []string{http.MethodGet, http.MethodDelete} { // streams and sessions of before
		r := w.request(middle, "", "Last-Event-ID", "7")
		r.Method = method
		resp, err := w.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if last := w.seen[len(w.seen)-1]; resp.StatusCode != http.StatusAccepted || last.Method != method || last.Header.Get("Last-Event-ID") != "7" {
			t.Errorf("%s: %d", method, resp.StatusCode)
		}
	}
	list := w.post(middle, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	if !strings.Contains(list.text, `"ttlMs": 300000`) || list.header.Get("X-Server") != "plain" {
		t.Errorf("%d %s", list.status, list.text)
	}
	if w.runs.Load() != 0 {
		t.Errorf("%d calls", w.runs.Load())
	}
}

// TestInput: what isn't a request gets the code that belongs to its fault under its own id, and
// nothing is sent on, recorded or held.
func TestInput(t *testing.T) {
	w := open(t, mcp.GatewayOptions{MaxBody: 1 << 20})
	call := func(v version, change ...string) string {
		_, raw := v.body("tools/call", `"name":"pay","arguments":{"order":1}`, `"idempotency-key":"k-1"`)
		for i := 0; i < len(change); i += 2 {
			if !strings.Contains(raw, change[i]) {
				t.Fatalf("%s has no %s", raw, change[i])
			}
			raw = strings.Replace(raw, change[i], change[i+1], 1)
		}
		return raw
	}
	for _, c := range []struct {
		name   string
		v      version
		body   string
		header string
		status int
		rpc    int
		text   string
	}{
		{"nothing", modern, "", "", 400, -32700, `"id":null`},
		{"no JSON", modern, `{`, "", 400, -32700, `"id":null`},
		{"two requests", modern, call(modern) + call(modern), "", 400, -32700, `"id":null`},
		{"two methods", middle, call(middle, `"jsonrpc"`, `"method":"ping","jsonrpc"`), "", 400, -32700, ""},
		{"a name twice in the arguments", middle, call(middle, `"order":1`, `"order":1,"order":2`), "", 400, -32700, ""},
		{"a name twice in what passes", middle, `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":1,"a":2}}`, "", 400, -32700, ""},
		{"a batch", modern, "[" + call(modern) + "]", "", 400, -32600, `"id":null`},
		{"a batch of a version that had them", "2025-03-26", "[" + call(oldest) + "]", "", 400, -32600, `"id":null`},
		{"an id that is an object", middle, call(middle, `"id":`, `"id":{},"x":`), "", 400, -32600, `"id":null`},
		{"an id that is null", middle, `{"jsonrpc":"2.0","id":null,"method":"tools/call","params":{"name":"pay"}}`, "", 400, -32600, `"id":null`},
		{"an id with a fraction", middle, `{"jsonrpc":"2.0","id":1.5,"method":"tools/call","params":{"name":"pay"}}`, "", 400, -32600, `"id":null`},
		{"a call that is a notification", middle, `{"jsonrpc":"2.0","method":"tools/call","params":{"name":"pay"}}`, "", 400, -32600, ""},
		{"a response", modern, `{"jsonrpc":"2.0","id":1,"result":{}}`, "", 400, -32600, ""},
		{"another spelling of the method", middle, call(middle, "tools/call", "Tools/Call"), "", 404, -32601, ""},
		{"another member", middle, call(middle, `"jsonrpc"`, `"Method":"x","jsonrpc"`), "", 400, -32600, ""},

		{"a version that nobody speaks", "1999-01-01", call(middle), "", 400, -32022, `"requested":"1999-01-01","supported":["2026-07-28","2025-11-25","2025-06-18"]`},
		{"a version with batches", "2025-03-26", call(oldest), "", 400, -32022, `"supported"`},
		{"a handshake for a version with batches", "", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-03-26"}}`, "Mcp-Protocol-Version=", 400, -32022, `"id":1`},
		{"no version", "", call(middle), "Mcp-Protocol-Version=", 400, -32020, ""},
		{"a version in the header only", modern, call(middle), "Mcp-Method=tools/call", 400, -32602, "protocolVersion"},
		{"another version in the body", modern, call(modern, `protocolVersion":"2026-07-28"`, `protocolVersion":"2025-11-25"`), "", 400, -32020, ""},
		{"another version in the header", middle, call(modern), "", 400, -32020, ""},
		{"no capabilities", modern, call(modern, `"io.modelcontextprotocol/clientCapabilities":{}`, `"x":1`), "", 400, -32602, "clientCapabilities"},
		{"no Mcp-Method", modern, call(modern), "Mcp-Method=", 400, -32020, "Mcp-Method"},
		{"another Mcp-Method", modern, call(modern), "Mcp-Method=tools/list", 400, -32020, "Mcp-Method"},
		{"no Mcp-Name", modern, call(modern), "Mcp-Name=", 400, -32020, "Mcp-Name"},
		{"another Mcp-Name", modern, call(modern), "Mcp-Name=search", 400, -32020, "Mcp-Name"},
		{"an Mcp-Name that isn't Base64", modern, call(modern), "Mcp-Name==?base64?%%?=", 400, -32020, "Mcp-Name"},

		{"parameters that are a list", middle, call(middle, `{"name"`, `[{"name"`)[:0] + `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":[]}`, "", 200, -32602, ""},
		{"no parameters", middle, `{"jsonrpc":"2.0","id":1,"method":"tools/call"}`, "", 200, -32602, ""},
		{"no name", middle, call(middle, `"name":"pay"`, `"x":1`), "", 200, -32602, ""},
		{"a name that is a number", middle, call(middle, `"name":"pay"`, `"name":1`), "", 200, -32602, ""},
		{"another spelling of the name", middle, call(middle, `"name":"pay"`, `"name":"search","Name":"pay"`), "", 200, -32602, ""},
		{"arguments that are a list", middle, call(middle, `{"order":1}`, `[1]`), "", 200, -32602, ""},
		{"a state that is an object", middle, call(middle, `"name"`, `"requestState":{},"name"`), "", 200, -32602, ""},
		{"two keys", middle, call(middle), "Idempotency-Key=k-2", 200, -32602, "differ"},
		{"a key that is a number", middle, call(middle, `"k-1"`, `7`), "", 200, -32602, "isn't a string"},
		{"an empty key", middle, call(middle, `"k-1"`, `""`), "", 200, -32602, "empty"},
		{"a key that is too long", middle, call(middle, `k-1`, strings.Repeat("k", 2000)), "", 200, -32602, ""},
		{"10 MiB of arguments", middle, call(middle, `"order":1`, `"order":"`+strings.Repeat("x", 10<<20)+`"`), "", 413, -32600, "body_too_large"},
	} {
		t.Run(c.name, func(t *testing.T) {
			header := []string{"Mcp-Name", "pay"}
			if name, value, ok := strings.Cut(c.header, "="); ok {
				header = append(header, name, value)
			}
			got := w.post(c.v, c.body, header...)
			if got.status != c.status || got.rpc != c.rpc || !strings.Contains(got.text, c.text) {
				t.Errorf("%d %d %s", got.status, got.rpc, got.text)
			}
			if n := w.runs.Load(); n != 0 {
				t.Fatalf("%d were sent on", n)
			}
		})
	}
	page, err := w.Engine.Search(t.Context(), store.Query{})
	if err != nil || len(page.Records) != 0 || len(w.said) != 0 {
		t.Errorf("recorded: %+v, %v; sent on: %q", page.Records, err, w.said)
	}
	if got := w.post(modern, call(modern), "Mcp-Name", "=?base64?cGF5?="); got.said() != "run 1" { // pay
		t.Errorf("the valid one got %s", got.text)
	}
}

// TestHTTP: other methods, types, paths and pages are refused as HTTP has it.
func TestHTTP(t *testing.T) {
	w := open(t, mcp.GatewayOptions{Origins: []string{"https://app.example"}, Path: "/mcp"})
	_, valid := middle.body("tools/call", `"name":"pay"`, `"idempotency-key":"k-1"`)
	host := strings.TrimPrefix(w.url, "http://")
	for _, c := range []struct {
		name, method, path string
		v                  version
		header             [2]string
		host               string
		status             int
	}{
		{"a stream of before, in a version without", http.MethodGet, "/mcp", modern, [2]string{}, "", 405},
		{"a session of before, in a version without", http.MethodDelete, "/mcp", modern, [2]string{}, "", 405},
		{"another method", http.MethodPut, "/mcp", middle, [2]string{}, "", 405},
		{"a body of a GET", http.MethodGet, "/mcp", middle, [2]string{"X-Body", "1"}, "", 405},
		{"another type", http.MethodPost, "/mcp", middle, [2]string{"Content-Type", "text/plain"}, "", 415},
		{"a coding", http.MethodPost, "/mcp", middle, [2]string{"Content-Encoding", "gzip"}, "", 415},
		{"another path", http.MethodPost, "/mcp/x", middle, [2]string{}, "", 404},
		{"another page", http.MethodPost, "/mcp", middle, [2]string{"Origin", "https://evil.example"}, "", 403},
		{"a page of a name that leads here", http.MethodPost, "/mcp", middle, [2]string{"Origin", "http://evil.example"}, "evil.example", 403},
		{"no origin at all", http.MethodPost, "/mcp", middle, [2]string{"Origin", "null"}, "", 403},
		{"a page that may", http.MethodPost, "/mcp", middle, [2]string{"Origin", "https://app.example"}, "", 200},
		{"a page of this host", http.MethodPost, "/mcp/", middle, [2]string{"Origin", "http://" + host}, "", 200},
	} {
		t.Run(c.name, func(t *testing.T) {
			raw := valid
			if c.method != http.MethodPost && c.header[0] != "X-Body" {
				raw = ""
			}
			r := w.request(c.v, raw)
			r.Method, r.URL.Path = c.method, c.path
			if c.header[0] != "" {
				r.Header.Set(c.header[0], c.header[1])
			}
			if c.host != "" {
				r.Host = c.host
			}
			resp, err := w.client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if text, _ := io.ReadAll(resp.Body); resp.StatusCode != c.status {
				t.Errorf("%d %s", resp.StatusCode, text)
			}
		})
	}
	if w.runs.Load() != 1 || len(w.seen) != 0 {
		t.Errorf("%d runs, %d passed", w.runs.Load(), len(w.seen))
	}
}

// TestMirroredArguments: a header that contradicts the argument it mirrors is refused, once the
// server has said which it mirrors.
func TestMirroredArguments(t *testing.T) {
	w := open(t, mcp.GatewayOptions{})
	const arguments = `{"order_id":"é 1","amount":42,"why":{"code":true}}`
	headers := func(change ...string) []string {
		return append([]string{"Mcp-Param-Order", "=?base64?w6kgMQ==?=", "Mcp-Param-Amount", "42.0", "Mcp-Param-Why", "true", "Mcp-Param-Unknown", "x"}, change...)
	}
	if _, got := w.call(modern, "refund", arguments, "", `"idempotency-key":"k-0"`); got.said() != "run 1" {
		t.Errorf("before the list was seen: %s", got.text)
	}
	w.post(middle, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	for i, c := range []struct {
		arguments string
		headers   []string
		refused   bool
	}{
		{arguments, headers(), false},
		{`{"order_id":"é 1","amount":null,"why":{}}`, []string{"Mcp-Param-Order", "=?base64?w6kgMQ==?="}, false},
		{arguments, headers("Mcp-Param-Amount", "43"), true},
		{arguments, headers("Mcp-Param-Amount", "4 2"), true},
		{arguments, headers("Mcp-Param-Order", "é 1 "), true},
		{arguments, headers("Mcp-Param-Order", "=?base64?%?="), true},
		{arguments, headers("Mcp-Param-Why", "True"), true},
		{arguments, headers("Mcp-Param-Why", ""), true},
		{`{"order_id":"a"}`, []string{"Mcp-Param-Order", "a", "Mcp-Param-Amount", "1"}, true},
	} {
		runs := w.runs.Load()
		_, got := w.call(modern, "refund", c.arguments, "", fmt.Sprintf(`"idempotency-key":"k-%d"`, i+1), c.headers...)
		if c.refused != (got.rpc == -32020 && got.status == 400) || c.refused != (w.runs.Load() == runs) {
			t.Errorf("%s with %v: %d %s", c.arguments, c.headers, got.status, got.text)
		}
	}
}
