package cli

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
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

// toolProgram is the argument by which this program is a server of standard input and output.
const toolProgram = "serve-tools"

// serveTools writes a line into a file for each call, and dies of the tool "die".
func serveTools(ledger string) {
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		id, params := jsonscan.Member(in.Bytes(), "id"), jsonscan.Member(in.Bytes(), "params")
		switch method, _ := jsonscan.Text(jsonscan.Member(in.Bytes(), "method")); method {
		case "initialize":
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25"}}`+"\n", id)
		case "tools/call":
			f, _ := os.OpenFile(ledger, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
			fmt.Fprintf(f, "%s\n", params)
			f.Close()
			fmt.Fprintln(os.Stderr, "running")
			if name, _ := jsonscan.Text(jsonscan.Member(params, "name")); name == "die" {
				os.Exit(1)
			}
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"done by %d"}]}}`+"\n", id, os.Getpid())
		}
	}
}

// host runs 'semel mcp wrap' as a host does, and returns what it prints for some lines.
func host(t *testing.T, args []string, say ...string) (answers []string) {
	t.Helper()
	in, feed := io.Pipe()
	out, print := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		code := Run(t.Context(), append([]string{"mcp", "wrap"}, args...), in, print, io.Discard)
		print.Close()
		ended <- code
	}()
	lines := bufio.NewScanner(out)
	for _, line := range say {
		if _, err := io.WriteString(feed, line+"\n"); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(line, `"id"`) {
			lines.Scan()
			answers = append(answers, lines.Text())
		}
	}
	feed.Close()
	for lines.Scan() {
		t.Errorf("it also printed %s", lines.Text())
	}
	if code := <-ended; code != ExitOK {
		t.Errorf("exit %d", code)
	}
	return answers
}

// TestMCPWrap: a server of standard input and output behind 'semel mcp wrap', which takes its place
// or offers it over HTTP: each call has one effect, also if the program dies or all is started again.
func TestMCPWrap(t *testing.T) {
	dir := t.TempDir()
	ledger := filepath.Join(dir, "ledger")
	flags := []string{"--store", "pebble:" + filepath.Join(dir, "data"), "--key", "refund=/order_id", "--key", "die=/order_id"}
	command := []string{"--", os.Args[0], toolProgram, ledger}
	request := func(id int, tool, order string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":{"order_id":%q}}}`, id, tool, order)
	}
	hello := []string{`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}`, `{"jsonrpc":"2.0","method":"notifications/initialized"}`}
	effects := func(want int) {
		t.Helper()
		text, _ := os.ReadFile(ledger)
		if n := strings.Count(string(text), "\n"); n != want {
			t.Errorf("%d effects, want %d:\n%s", n, want, text)
		}
	}
	got := host(t, append(flags, command...), append(hello, request(1, "refund", "A"), request(2, "refund", "A"), request(3, "die", "B"), request(4, "die", "B"), request(5, "refund", "C"))...)
	first := strings.TrimPrefix(got[1], `{"jsonrpc":"2.0","id":1,"result":{`)
	for i, want := range []string{
		`{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25"}}`, `"text":"done by `, `{"jsonrpc":"2.0","id":2,"result":{"_meta":{"io.github.semelhq/replayed":true},` + first,
		`"outcome":"unknown"`, `"outcome":"unknown"`, `"id":5,"result":{"content":`,
	} {
		if !strings.Contains(got[i], want) {
			t.Errorf("line %d is %s, want %s", i, got[i], want)
		}
	}
	if strings.Contains(got[5], first[strings.Index(first, "done by"):]) {
		t.Error("it wasn't started again")
	}
	effects(3)
	got = host(t, append(flags, command...), append(hello, request(7, "refund", "A"), request(8, "die", "B"))...)
	if !strings.Contains(got[1], `"id":7,`) || !strings.Contains(got[1], first) || !strings.Contains(got[2], `"outcome":"unknown"`) {
		t.Errorf("after a restart: %q", got)
	}
	effects(3)
	at := guarding(t, append([]string{"mcp", "wrap", "--key", "refund=/order_id", "--listen", "127.0.0.1:0", "--store", "memory:", "--json"}, command...)...)
	for range 3 {
		if got := ask(t, at.URL, "tools/call", `{"name":"refund","arguments":{"order_id":"D"}}`); !strings.Contains(got, "done by") {
			t.Error(got)
		}
	}
	effects(4)
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
	at := guarding(t, "mcp", endpoint, "--listen", "127.0.0.1:0", "--store", "memory:", "--json", "--key", "refund=/order_id,/amount", "--trust-hints", "--echo", "0", "--path", "/tools")
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
	at := guarding(t, "mcp", endpoint, "--listen", "127.0.0.1:0", "--store", "memory:", "--json", "--key", "refund=/order_id", "--remember", "89d")
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
