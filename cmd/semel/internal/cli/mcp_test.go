package cli

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/semelhq/semel/internal/jsonscan"
	"github.com/semelhq/semel/internal/rig/stage"
)

// toolServer is a plain server of tools. Each result has the number of its call.
func toolServer(t *testing.T) (endpoint string, runs *atomic.Int64) {
	t.Helper()
	runs = &atomic.Int64{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		result := `{"tools":[{"name":"refund"},{"name":"note"},{"name":"look","annotations":{"readOnlyHint":true}}]}`
		if method, _ := jsonscan.Text(jsonscan.Member(body, "method")); method == "tools/call" {
			result = fmt.Sprintf(`{"content":[{"type":"text","text":"run %d"}]}`, runs.Add(1))
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, jsonscan.Member(body, "id"), result)
	}))
	t.Cleanup(server.Close)
	return server.URL + "/mcp", runs
}

// ask sends a request over MCP.
func ask(t *testing.T, url, method, params string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, params)))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("MCP-Protocol-Version", "2025-11-25")
	resp, err := stage.Direct.Do(r)
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

func TestMCPByFlags(t *testing.T) {
	t.Parallel()
	endpoint, runs := toolServer(t)
	at := guarding(t, "mcp", endpoint, "--key", "refund=/order_id,/amount", "--trust-hints", "--echo", "0", "--path", "/tools")
	if !strings.HasSuffix(at.URL, "/tools") {
		t.Errorf("the endpoint is %s", at.URL)
	}
	if list := ask(t, at.URL, "tools/list", "{}"); strings.Count(list, `"idempotentHint":true`) != 1 || !strings.Contains(list, `{"annotations":{"idempotentHint":true},"name":"refund"}`) {
		t.Errorf("the tools are %s", list)
	}
	for i, c := range []struct {
		params, want string
		runs         int64
	}{
		{`{"name":"refund","arguments":{"order_id":"A","amount":5}}`, "run 1", 1},
		{`{"name":"refund","arguments":{"order_id":"A","amount":5}}`, "run 1", 1},
		{`{"name":"refund","arguments":{"order_id":"B","amount":5}}`, "run 2", 2},
		{`{"name":"look"}`, `"result":{"content":[{"type":"text","text":"run 3"}]}`, 3}, // it passes
		{`{"name":"note"}`, `"io.github.semelhq/repetition":"unknown"`, 4},
		{`{"name":"note"}`, `"io.github.semelhq/repetition":"unknown"`, 5},
		{`{"name":"note","_meta":{"idempotency-key":"k"}}`, "run 6", 6},
		{`{"name":"note","_meta":{"idempotency-key":"k"}}`, "run 6", 6},
	} {
		if got := ask(t, at.URL, "tools/call", c.params); !strings.Contains(got, c.want) || runs.Load() != c.runs {
			t.Errorf("%d: %s; %d ran", i, got, runs.Load())
		}
	}
}

// The hint is a promise of 90 days. Where calls are forgotten earlier, it isn't given.
func TestMCPHintsOnlyWhatLasts(t *testing.T) {
	t.Parallel()
	endpoint, _ := toolServer(t)
	at := guarding(t, "mcp", endpoint, "--key", "refund=/order_id", "--remember", "89d")
	if list := ask(t, at.URL, "tools/list", "{}"); strings.Contains(list, "idempotentHint") {
		t.Errorf("the tools are %s", list)
	}
}

func TestWrongFlagsOfMCPAreNamed(t *testing.T) {
	for _, c := range [][]string{
		{"", "--key", "refund"},
		{"", "--key", "refund=order_id"},
		{"", "--key", "refund=/a~2"},
		{"--read-only", "--key", "refund=/a", "--read-only", "refund"},
		{"", "--path", "mcp"},
		{"", "--remember", "long"},
		{"--remember", "--window", "7d", "--remember", "1d"},
		{"", "--answers", "maybe=503"},
	} {
		flag, args := c[0], c[1:]
		if flag == "" {
			flag = args[0]
		}
		code, _, errs := semelWith(t, "", append([]string{"mcp", "http://127.0.0.1:1/mcp", "--store", "memory:"}, args...)...)
		if code == ExitOK || !strings.Contains(errs, flag) || strings.Contains(errs, "mcp[") || strings.Contains(errs, "operations[") {
			t.Errorf("%q: exit %d, %s", args, code, errs)
		}
	}
	if code, _, errs := semelWith(t, "", "mcp", "h2c://127.0.0.1:1/mcp"); code != ExitUsage || !strings.Contains(errs, "/mcp") {
		t.Errorf("exit %d, %s", code, errs)
	}
}
