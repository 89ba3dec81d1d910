package stdio_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel/internal/stdio"
)

// TestMain is also the server that the tests start, by the argument "serve".
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "serve" {
		serve()
		return
	}
	os.Exit(m.Run())
}

type message struct {
	ID     json.RawMessage `json:"id,omitempty"`
	Method string          `json:"method,omitempty"`
	Params struct {
		Name      string          `json:"name"`
		RequestID json.RawMessage `json:"requestId"`
		Meta      struct {
			ProgressToken json.RawMessage `json:"progressToken"`
		} `json:"_meta"`
	} `json:"params,omitzero"`
	Result json.RawMessage `json:"result,omitempty"`
}

// serve is a server that does what the name of a tool says, good and bad.
func serve() {
	calls := 0
	answer := func(id json.RawMessage, format string, args ...any) {
		fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", id, fmt.Sprintf(format, args...))
	}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var m message
		_ = json.Unmarshal(in.Bytes(), &m)
		switch m.Method {
		case "initialize":
			answer(m.ID, `{"protocolVersion":"2025-11-25","pid":%d}`, os.Getpid())
		case "notifications/initialized":
			fmt.Println(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		case "notifications/cancelled":
			answer(m.Params.RequestID, `{"stale":true}`) // a good one wouldn't
		case "tools/list":
			answer(m.ID, `{"tools":[{"name":"pay","inputSchema":{"properties":{"order":{"x-mcp-header":"Order"}}}}]}`)
		case "":
			fmt.Fprintf(os.Stderr, "answered %s\n", m.Result)
		case "tools/call":
			calls++
			switch m.Params.Name {
			case "die":
				os.Exit(3)
			case "hang":
				fmt.Fprintln(os.Stderr, "hanging")
				continue
			case "deaf":
				select {}
			case "garbage":
				fmt.Println("Server running on stdio!")
				fmt.Println(`{"jsonrpc":"2.0","result":{}}`)
				fmt.Println(`[]`)
			case "twice":
				answer(m.ID, `{"call":%d,"pid":%d}`, calls, os.Getpid())
			case "ask":
				fmt.Println(`{"jsonrpc":"2.0","id":"s-1","method":"roots/list"}`)
			case "progress":
				fmt.Printf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1}}`+"\n", m.Params.Meta.ProgressToken)
			}
			answer(m.ID, `{"call":%d,"pid":%d}`, calls, os.Getpid())
		}
	}
}

// lines is what somebody printed, line by line.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{}
}

func newLines() *lines { return &lines{more: make(chan struct{}, 1)} }

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.more <- struct{}{}:
	default:
	}
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// wait waits until there is a text.
func (l *lines) wait(t *testing.T, text string) {
	t.Helper()
	for !strings.Contains(l.String(), text) {
		select {
		case <-l.more:
		case <-t.Context().Done():
			t.Fatalf("no %s in %s", text, l)
		}
	}
}

func newChild(t *testing.T, timeout time.Duration) (child *stdio.Child, url string, errs *lines) {
	t.Helper()
	errs = newLines()
	child = &stdio.Child{Command: []string{os.Args[0], "serve"}, Stderr: errs, Timeout: timeout, Bridged: true}
	server := httptest.NewServer(child)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		child.Close()
	})
	return child, server.URL, errs
}

func post(ctx context.Context, t *testing.T, url, body string) (status int, text string, err error) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(raw), err
}

func call(id, tool, meta string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":%q%s}}`, id, tool, meta)
}

// TestChild: each request gets its own answer under its own id, whatever else the program prints.
func TestChild(t *testing.T) {
	_, url, errs := newChild(t, time.Minute)
	ask := func(body string) string {
		t.Helper()
		_, text, err := post(t.Context(), t, url, body)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	first := ask(call(`"a"`, "pay", ""))
	pid := first[strings.Index(first, `"pid"`):]
	for i, c := range []struct{ body, want string }{
		{call(`"a"`, "pay", ""), `{"jsonrpc":"2.0","id":"a","result":{"call":2,` + pid},
		{call(`1e2`, "twice", ""), `{"jsonrpc":"2.0","id":1e2,"result":{"call":3,` + pid},
		{call(`5`, "pay", ""), `{"jsonrpc":"2.0","id":5,"result":{"call":4,` + pid},
		{call(`6`, "garbage", ""), `{"jsonrpc":"2.0","id":6,"result":{"call":5,` + pid},
		{call(`7`, "progress", `,"_meta":{"progressToken":"tok"}`), "data: " + `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"tok","progress":1}}` + "\n\ndata: " + `{"jsonrpc":"2.0","id":7,"result":{"call":6,` + pid + "\n\n"},
		{`{"jsonrpc":"2.0","id":8,"method":"tools/list"}`, `"x-not-mirrored":"Order"`},
		{`{"jsonrpc":"2.0","method":"notifications/x"}`, ""},
		{`nonsense`, `-32600`},
	} {
		if got := ask(c.body); got != c.want && (!strings.Contains(got, c.want) || strings.HasPrefix(c.want, "{")) {
			t.Errorf("%d: got %s, want %s", i, got, c.want)
		}
	}
	errs.wait(t, "Server running on stdio!")
	errs.wait(t, "an answer without an id")
	var all sync.WaitGroup
	for i := range 50 { // all under one id
		all.Go(func() {
			if got := ask(call("1", "pay", fmt.Sprintf(`,"_meta":{"i":%d}`, i))); !strings.HasPrefix(got, `{"jsonrpc":"2.0","id":1,"result":{"call":`) {
				t.Errorf("got %s", got)
			}
		})
	}
	all.Wait()
}

// TestChildDies: nobody knows what became of what was under way, and what follows gets a new
// program, which has heard what the first client said.
func TestChildDies(t *testing.T) {
	_, url, errs := newChild(t, time.Minute)
	_, hello, err := post(t.Context(), t, url, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}`)
	if err != nil || !strings.Contains(hello, "pid") {
		t.Fatal(hello, err)
	}
	_, again, err := post(t.Context(), t, url, `{"jsonrpc":"2.0","id":"x","method":"initialize","params":{"protocolVersion":"2025-06-18"}}`)
	if err != nil || again != strings.Replace(hello, `"id":1`, `"id":"x"`, 1) {
		t.Errorf("the second client gets %s, %v", again, err)
	}
	hanging := make(chan error, 1)
	go func() {
		_, _, err := post(t.Context(), t, url, call("2", "hang", ""))
		hanging <- err
	}()
	errs.wait(t, "hanging")
	if _, text, err := post(t.Context(), t, url, call("3", "die", "")); err == nil {
		t.Errorf("the call that killed it got %s", text)
	}
	if err := <-hanging; err == nil {
		t.Error("the call beside it got an answer")
	}
	if _, text, err := post(t.Context(), t, url, call("4", "pay", "")); err != nil || !strings.Contains(text, `"call":1,`) {
		t.Errorf("after that: %s, %v", text, err)
	}
	child := &stdio.Child{Command: []string{"/no/such/program"}, Stderr: errs, Timeout: time.Minute}
	w := httptest.NewRecorder()
	child.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(call("5", "pay", ""))))
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Semel-Effect") != "none" || !strings.Contains(w.Body.String(), `"id":5`) {
		t.Errorf("a program that isn't there: %d %v %s", w.Code, w.Header(), w.Body)
	}
}

// TestChildIsSilent: a program that hangs is killed, and a client that leaves cancels; what the
// program says of either afterwards reaches nobody.
func TestChildIsSilent(t *testing.T) {
	_, url, _ := newChild(t, 200*time.Millisecond)
	if _, text, err := post(t.Context(), t, url, call("1", "hang", "")); err == nil {
		t.Errorf("got %s", text)
	}
	if _, text, err := post(t.Context(), t, url, call("1", "pay", "")); err != nil || !strings.Contains(text, `"call":1,`) {
		t.Errorf("after that: %s, %v", text, err)
	}
	if _, text, err := post(t.Context(), t, url, call("1", "deaf", "")); err == nil {
		t.Errorf("got %s", text)
	}
	if _, text, err := post(t.Context(), t, url, call("2", strings.Repeat("pay", 1<<20), "")); err == nil {
		t.Errorf("got %s", text)
	}
	_, url, errs := newChild(t, time.Minute)
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan struct{})
	go func() {
		defer close(left)
		_, _, _ = post(ctx, t, url, call("1", "hang", ""))
	}()
	errs.wait(t, "hanging")
	leave()
	<-left
	for range 5 {
		if _, text, err := post(t.Context(), t, url, call("1", "pay", "")); err != nil || strings.Contains(text, "stale") {
			t.Errorf("after that: %s, %v", text, err)
		}
	}
}

// TestBridge: a host and a program of standard input and output, through HTTP.
func TestBridge(t *testing.T) {
	_, url, errs := newChild(t, time.Minute)
	out := newLines()
	in, feed := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- (&stdio.Bridge{Endpoint: url, Out: out}).Run(t.Context(), in) }()
	say := func(text string) { _, _ = io.WriteString(feed, text+"\n") }
	say(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}`)
	out.wait(t, `"id":1,"result":{"protocolVersion":"2025-11-25"`)
	say(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	out.wait(t, `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`+"\n")
	say(call("2", "ask", ""))
	out.wait(t, `{"jsonrpc":"2.0","id":"s-1","method":"roots/list"}`+"\n")
	say(`{"jsonrpc":"2.0","id":"s-1","result":{"roots":[]}}`)
	errs.wait(t, `answered {"roots":[]}`)
	out.wait(t, `"id":2,`)
	say(call("3", "hang", ""))
	errs.wait(t, "hanging")
	say(call("3", "pay", ""))
	out.wait(t, "A request with this id is under way.")
	say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3}}`)
	say(call("4", "progress", `,"_meta":{"progressToken":9}`))
	out.wait(t, `"progressToken":9,"progress":1}}`+"\n")
	out.wait(t, `"id":4,`)
	say(`[]`)
	out.wait(t, "There are no batches here.")
	say("")
	say(call("5", "die", ""))
	out.wait(t, `{"jsonrpc":"2.0","id":5,"error":`)
	feed.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if n := strings.Count(out.String(), `"id":3,`); n != 1 || strings.Contains(out.String(), "stale") {
		t.Errorf("of the cancelled request came %d lines:\n%s", n, out)
	}
}

// TestBridgeHasABound: a server that sends a message without an end isn't read for ever, and the host
// hears that there is no answer.
func TestBridgeHasABound(t *testing.T) {
	for _, media := range []string{"application/json", "text/event-stream"} {
		var sent atomic.Int64
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", media)
			_, _ = io.WriteString(w, "data: ")
			for part := make([]byte, 1<<20); sent.Add(1) < 200; {
				if _, err := w.Write(part); err != nil {
					return
				}
			}
		}))
		out := newLines()
		in := strings.NewReader(call("1", "pay", "") + "\n")
		if err := (&stdio.Bridge{Endpoint: server.URL, Out: out}).Run(t.Context(), in); err != nil {
			t.Error(err)
		}
		if got := out.String(); !strings.Contains(got, `"id":1,"error"`) || !strings.Contains(got, "more than") || sent.Load() > 100 {
			t.Errorf("%s: %.300s after %d MiB", media, got, sent.Load())
		}
		server.Close()
	}
}
