package service_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/semelhq/semel/internal/jsonscan"
	"github.com/semelhq/semel/internal/rig/stage"
)

// toolServer is a plain server of tools behind the service. Each result has the number of its call.
func toolServer(t *testing.T) (endpoint string, runs *atomic.Int64, last *atomic.Pointer[http.Header]) {
	t.Helper()
	runs, last = &atomic.Int64{}, &atomic.Pointer[http.Header]{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		last.Store(&r.Header)
		result := `{"tools":[{"name":"refund","inputSchema":{"type":"object"}},{"name":"note","inputSchema":{"type":"object"}},{"name":"look","annotations":{"readOnlyHint":true}}]}`
		if method, _ := jsonscan.Text(jsonscan.Member(body, "method")); method == "tools/call" {
			result = fmt.Sprintf(`{"content":[{"type":"text","text":"run %d"}]}`, runs.Add(1))
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, jsonscan.Member(body, "id"), result)
	}))
	t.Cleanup(server.Close)
	return server.URL, runs, last
}

func toolCall(id int, tool, arguments string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, id, tool, arguments)
}

const toolService = `
store: {url: 'memory:'}
auth: {default_tenant: acme, tokens: [{name: alice, sha256: 0c848abb03307b06cf70cd4e29c157dc81af5e94ab3eb1d0c59a120269572376}, {name: bob, sha256: 9f03ef1533a68d2f506f81ef463c1183a82a6bd40e45613f36e6fe1889cf1b99}]}
operations: [{name: tools}, {name: refunds, window: 7d}]
mcp:
  - path: /mcp
    upstream: SERVER
    operation: tools
    echo: 0s
    attributes: {order: json:/order_id}
    principal_header: X-Principal
    tools:
      - {name: look, read_only: true}
      - name: refund
        operation: refunds
        key_fields: [/order_id, /amount]
`

// TestMCP: the tools of a server in the configuration run once for each call of callers that auth
// knows, by what the section says of each.
func TestMCP(t *testing.T) {
	endpoint, runs, last := toolServer(t)
	s := start(t, write(t, strings.ReplaceAll(toolService, "SERVER", endpoint)))
	version := []string{"MCP-Protocol-Version", "2025-11-25", "Accept", "application/json, text/event-stream"}
	for i, c := range []struct {
		who, body string
		status    int
		text      string
		runs      int64
	}{
		{"", toolCall(1, "refund", `{"order_id":"A","amount":5}`), 401, "", 0},
		{"alice-secret", toolCall(2, "refund", `{"order_id":"A","amount":5}`), 200, `"id":2,"result":{"content":[{"type":"text","text":"run 1"}]`, 1},
		{"alice-secret", toolCall(3, "refund", `{"amount":5,"order_id":"A"}`), 200, `"id":3,"result":{"_meta":{"io.github.semelhq/replayed":true},"content":[{"type":"text","text":"run 1"}]`, 1},
		{"alice-secret", toolCall(4, "refund", `{"order_id":"A"}`), 200, `/amount`, 1},
		{"bob-secret", toolCall(5, "refund", `{"order_id":"A","amount":5}`), 200, `run 2`, 2},
		{"alice-secret", toolCall(6, "note", `{}`), 200, `"io.github.semelhq/repetition":"unknown"`, 3},
		{"alice-secret", toolCall(7, "look", `{}`), 200, `"result":{"content":[{"type":"text","text":"run 4"}]}`, 4},
		{"alice-secret", `[` + toolCall(8, "note", `{}`) + `]`, 400, `-32600`, 4},
		{"alice-secret", `{"jsonrpc":"2.0","id":9,"method":"tools/list"}`, 200, `{"annotations":{"idempotentHint":true},"name":"refund","inputSchema":{"type":"object"}},{"name":"note","inputSchema":{"type":"object"}}`, 4},
	} {
		header := version
		if c.who != "" {
			header = append([]string{"Authorization", "Bearer " + c.who}, version...)
		}
		status, _, text := do(t, "POST", s.data("/mcp"), c.body, header...)
		if status != c.status || !strings.Contains(text, c.text) || runs.Load() != c.runs {
			t.Errorf("%d: %d %s; %d ran", i, status, text, runs.Load())
		}
	}
	if h := *last.Load(); h.Get("X-Principal") != "alice" || h.Get("Authorization") != "" {
		t.Errorf("the server got %v", h)
	}
	_, _, text := do(t, "GET", s.admin("/v1/records?q=attribute:tool%3Drefund+attribute:order%3DA"), "")
	var page struct {
		Records []struct{ Operation, Door, Status string }
	}
	if err := json.Unmarshal([]byte(text), &page); err != nil || len(page.Records) != 2 || page.Records[0].Operation != "refunds" || page.Records[0].Door != "mcp" || page.Records[0].Status != "completed" {
		t.Errorf("the records of the refunds: %v %s", err, text)
	}
	// Calls of the operation begin at the server only, and another method isn't a tool call.
	if status, _, text := do(t, "POST", s.data("/v1/operations/tools/executions"), `{"key":"k"}`, "Authorization", "Bearer alice-secret"); status < 400 {
		t.Errorf("the execution API: %d %s", status, text)
	}
	var x explained
	if status, _, text := do(t, "POST", s.admin("/v1/explain"), `{"request": "POST /mcp"}`); status != 200 || json.Unmarshal([]byte(text), &x) != nil || x.Rule != "door mcp" {
		t.Errorf("explain: %d %s", status, text)
	}
}

// TestMCPKnowsWhatArrived: through the listener of the service it shows that an answer arrived, so
// that two honest equal calls are two, also of clients that use each connection once.
func TestMCPKnowsWhatArrived(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells what a client has acknowledged")
	}
	endpoint, runs, _ := toolServer(t)
	s := start(t, write(t, strings.NewReplacer("SERVER", endpoint, "echo: 0s", "echo: 2m").Replace(toolService)))
	call := func(client *http.Client) string {
		r, err := http.NewRequestWithContext(t.Context(), "POST", s.data("/mcp"), strings.NewReader(toolCall(1, "note", `{"text":"hi"}`)))
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range map[string]string{"Content-Type": "application/json", "MCP-Protocol-Version": "2025-11-25", "Authorization": "Bearer alice-secret"} {
			r.Header.Set(name, value)
		}
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	kept := &http.Client{Transport: &http.Transport{}}
	defer kept.CloseIdleConnections()
	for i, client := range []*http.Client{kept, kept, stage.Direct, stage.Direct, stage.Direct} {
		if text := call(client); !strings.Contains(text, fmt.Sprint("run ", i+1)) || runs.Load() != int64(i+1) {
			t.Errorf("call %d got %s", i+1, text)
		}
		kept.CloseIdleConnections() // after it has read everything
	}
}

// TestMCPNeedsHTTP1: over HTTP/2 nobody can tell whether an answer arrived, so a listener with
// tools doesn't speak it, and the first server needs a restart.
func TestMCPNeedsHTTP1(t *testing.T) {
	endpoint, _, _ := toolServer(t)
	file := write(t, "store: {url: 'memory:'}\noperations: [{name: tools}]\n")
	s := start(t, file)
	http2 := &http.Client{Transport: &http.Transport{Protocols: new(http.Protocols)}}
	http2.Transport.(*http.Transport).Protocols.SetUnencryptedHTTP2(true)
	defer http2.CloseIdleConnections()
	ask := func(url string) error {
		r, err := http.NewRequestWithContext(t.Context(), "GET", url, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http2.Do(r)
		if err == nil {
			resp.Body.Close()
		}
		return err
	}
	if err := ask(s.data("/")); err != nil {
		t.Error(err)
	}
	with := "store: {url: 'memory:'}\noperations: [{name: tools}]\nmcp: [{path: /mcp, upstream: '" + endpoint + "', operation: tools}]\n"
	if err := os.WriteFile(file, []byte(with), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Reload(); err == nil || !strings.Contains(err.Error(), "mcp[0]") {
		t.Errorf("the reload says %v", err)
	}
	s = start(t, write(t, with))
	if err := ask(s.data("/mcp")); err == nil {
		t.Error("the listener speaks HTTP/2")
	}
}

// TestMCPReconciles: a call whose answer was lost is settled by another tool of the server, and what
// follows tasks begins nowhere else.
func TestMCPReconciles(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch name, _ := jsonscan.Text(jsonscan.Member(jsonscan.Member(body, "params"), "name")); name {
		case "refund":
			panic(http.ErrAbortHandler)
		case "get_refund":
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"refunded %s"}],"structuredContent":{"status":"refunded"}}}`,
				jsonscan.Member(body, "id"), strings.Trim(string(jsonscan.Member(jsonscan.Member(jsonscan.Member(body, "params"), "arguments"), "id")), `"`))
		}
	}))
	defer server.Close()
	s := start(t, write(t, strings.ReplaceAll(toolService, "SERVER", server.URL+"/mcp")+`        reconcile: {tool: get_refund, arguments: {id: /order_id}, done: ["json:/structuredContent/status=refunded"]}
`))
	header := []string{"MCP-Protocol-Version", "2025-11-25", "Authorization", "Bearer alice-secret"}
	if _, _, text := do(t, "POST", s.data("/mcp"), toolCall(1, "refund", `{"order_id":"A","amount":5}`), header...); !strings.Contains(text, `"outcome":"unknown"`) {
		t.Errorf("the first call: %s", text)
	}
	_, _, text := do(t, "GET", s.admin("/v1/records?q=held"), "")
	var page struct{ Records []struct{ ID string } }
	if err := json.Unmarshal([]byte(text), &page); err != nil || len(page.Records) != 1 {
		t.Fatal(err, text)
	}
	if status, _, text := do(t, "POST", s.admin("/v1/records/"+page.Records[0].ID+"/reconcile"), "{}"); status != 200 {
		t.Errorf("the reconciler: %d %s", status, text)
	}
	for id := 2; ; id++ { // the sweep asks
		_, _, text := do(t, "POST", s.data("/mcp"), toolCall(id, "refund", `{"order_id":"A","amount":5}`), header...)
		if strings.Contains(text, `"text":"refunded A"`) {
			break
		}
		if !strings.Contains(text, `"code":"held"`) {
			t.Fatalf("call %d: %s", id, text)
		}
	}
	for _, operation := range []string{"refunds.task", "tools.task"} {
		if status, _, text := do(t, "POST", s.data("/v1/operations/"+operation+"/executions"), `{"key":"k"}`, "Authorization", "Bearer alice-secret"); status != 404 && status != 403 {
			t.Errorf("%s: %d %s", operation, status, text)
		}
	}
}

// TestMCPConfirms: a tool call of an operation with confirm waits for an operator, who confirms this call
// and no other, once.
func TestMCPConfirms(t *testing.T) {
	var runs atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"run %d"}]}}`, jsonscan.Member(body, "id"), runs.Add(1))
	}))
	defer server.Close()
	config := strings.ReplaceAll(toolService, "SERVER", server.URL+"/mcp")
	s := start(t, write(t, strings.Replace(config, "name: refunds", "name: refunds, confirm: 5m", 1)))
	header := []string{"MCP-Protocol-Version", "2025-11-25", "Authorization", "Bearer alice-secret"}
	call := func(id int, order string) string {
		_, _, text := do(t, "POST", s.data("/mcp"), toolCall(id, "refund", `{"order_id":"`+order+`","amount":5}`), header...)
		return text
	}
	if text := call(1, "A"); !strings.Contains(text, "confirmation_required") || !strings.Contains(text, "semel records confirm") {
		t.Fatalf("the first call: %s", text)
	}
	_, _, text := do(t, "GET", s.admin("/v1/records?q=operation:refunds"), "")
	var page struct{ Records []struct{ ID string } }
	if err := json.Unmarshal([]byte(text), &page); err != nil || len(page.Records) != 1 {
		t.Fatal(err, text)
	}
	if status, _, text := do(t, "POST", s.admin("/v1/records/"+page.Records[0].ID+"/confirm"), `{"reason":"she said yes"}`); status != 200 {
		t.Fatalf("the operator: %d %s", status, text)
	}
	if text := call(2, "B"); !strings.Contains(text, "confirmation_required") || runs.Load() != 0 {
		t.Errorf("another order: %s", text)
	}
	for id := 3; id <= 4; id++ {
		if text := call(id, "A"); !strings.Contains(text, "run 1") || runs.Load() != 1 {
			t.Errorf("call %d: %s", id, text)
		}
	}
}
