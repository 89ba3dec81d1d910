package mcp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/mcp"
	"github.com/semelhq/semel/door/semelhttp/semelhttptest"
	"github.com/semelhq/semel/internal/jsonscan"
	"github.com/semelhq/semel/store"
)

type object = map[string]any

func member(v any, path ...string) any {
	for _, name := range path {
		m, _ := v.(object)
		v = m[name]
	}
	return v
}

// server is a plain server of tools. It does what the test says, and counts.
type server struct {
	runs  atomic.Int64
	began chan struct{} // gets one value for each call
	// answer answers a tool call; nil: with its number, as JSON or as a stream.
	answer func(w http.ResponseWriter, r *http.Request, id string, params object)
	stream bool
	// rest answers a client that reads on in a stream; nil: nobody can.
	rest http.HandlerFunc
	// other answers other requests, or reports false.
	other func(w http.ResponseWriter, r *http.Request, method string, raw []byte) bool

	mu   sync.Mutex
	seen []*http.Request // of other requests
	said []string        // their bodies
}

func newServer() *server { return &server{began: make(chan struct{}, 1000)} }

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	raw, _ := io.ReadAll(r.Body)
	if r.Method == http.MethodGet && s.rest != nil {
		s.rest(w, r)
		return
	}
	if method, _ := jsonscan.Text(jsonscan.Member(raw, "method")); method != "tools/call" {
		s.mu.Lock()
		s.seen, s.said = append(s.seen, r), append(s.said, string(raw))
		s.mu.Unlock()
		if s.other != nil && s.other(w, r, method, raw) {
			return
		}
		w.Header().Set("X-Server", "plain")
		w.Header().Set("Content-Type", "application/json")
		if method == "tools/list" {
			fmt.Fprintf(w, `{"jsonrpc": "2.0", "id": %s, "result": %s}`, jsonscan.Member(raw, "id"), tools)
			return
		}
		w.WriteHeader(http.StatusAccepted)
		fmt.Fprintf(w, ` {"echo": %q}`, raw)
		return
	}
	var params object
	_ = json.Unmarshal(jsonscan.Member(raw, "params"), &params)
	id := string(jsonscan.Member(raw, "id"))
	n := s.runs.Add(1)
	r = r.WithContext(context.WithValue(r.Context(), runKey{}, n))
	s.began <- struct{}{}
	if s.answer != nil {
		s.answer(w, r, id, params)
		return
	}
	result := fmt.Sprintf(`{"content": [{"type":"text","text":"run %d"}], "isError": false}`, n)
	if s.stream {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, ": hello\n\nid: 1\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progress\":1}}\n\n")
		fmt.Fprintf(w, "id: 2\nevent: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":%s}\n\n", id, result)
		return
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	fmt.Fprintf(w, `{"id":%s, "jsonrpc":"2.0","result":%s}`, id, result)
}

// echoParams answers with the names of the parameters, but for _meta.
func echoParams(w http.ResponseWriter, _ *http.Request, id string, params object) {
	delete(params, "_meta")
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":%q}]}}`, id, strings.Join(slices.Sorted(maps.Keys(params)), " "))
}

type runKey struct{}

// run is the number of the call that a request to the server makes.
func run(r *http.Request) int64 { return r.Context().Value(runKey{}).(int64) }

const tools = `{
  "tools": [
    {"name": "search", "annotations": {"readOnlyHint": true, "title":"x"}, "inputSchema": {"type":"object"}},
    {"name":"refund","inputSchema":{"type":"object","properties":{"order_id":{"type":"string","x-mcp-header":"Order"},"amount":{"type":"integer","x-mcp-header":"Amount"},"why":{"type":"object","properties":{"code":{"type":"boolean","x-mcp-header":"Why"}}}}}},
    {"annotations":{ "idempotentHint" :false,"destructiveHint":true},"name":"pay","outputSchema":{"type":"object"},"inputSchema":{"type":"object","properties":{"idempotency_key":{"type":"string"}},"required":["idempotency_key"]}}
  ], "ttlMs": 300000, "cacheScope":"public"}`

// world is a server behind a gateway.
type world struct {
	t *testing.T
	*server
	*semelhttptest.Service
	url     string
	gateway *mcp.Gateway
	client  http.Client
}

// operation is that of calls in tests.
var operation = semel.Operation{Name: "tools", MaxWait: time.Minute}

// open is a plain server behind a gateway.
func open(t *testing.T, opts mcp.GatewayOptions) *world {
	return behind(t, newServer(), opts)
}

// behind is a server behind a gateway.
func behind(t *testing.T, s *server, opts mcp.GatewayOptions, engine ...semel.Options) *world {
	w := &world{t: t, server: s, Service: semelhttptest.New(t, &append(engine, semel.Options{})[0])}
	if opts.Operation.Name == "" {
		opts.Operation = operation
	}
	opts.Upstream, _ = url.Parse(listen(t, s) + "/mcp")
	var err error
	if w.gateway, err = mcp.NewGateway(w.Guard, opts); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.gateway.Close)
	w.url = listen(t, w.gateway)
	w.client.Transport = &http.Transport{}
	t.Cleanup(w.client.CloseIdleConnections)
	return w
}

func listen(t *testing.T, h http.Handler) string {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

// version is a way to speak to a server.
type version string

const (
	modern version = mcp.Modern
	middle version = "2025-11-25"
	oldest version = "2025-06-18"
)

var all = []version{modern, middle, oldest}

var ids atomic.Int64

// body is a request with an id that no other has.
func (v version) body(method, params, meta string) (id, raw string) {
	id = fmt.Sprint(ids.Add(1))
	if v == modern {
		meta = strings.TrimPrefix(meta+`,"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}`, ",")
	}
	if meta != "" {
		params += `,"_meta":{` + meta + `}`
	}
	return id, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":{%s}}`, id, method, strings.TrimPrefix(params, ","))
}

// answer is what a caller got.
type answer struct {
	status int
	header http.Header
	text   string
	id     string // that of the response
	result object // nil: there is an error
	events int
	rpc    int    // the error's code
	code   string // Semel's
	action store.Action
}

// call calls a tool. more are members of the parameters, and of _meta.
func (w *world) call(v version, tool, arguments, more, meta string, header ...string) (asked string, a *answer) {
	w.t.Helper()
	params := fmt.Sprintf(`"name":%q,"arguments":%s`, tool, arguments)
	if more != "" {
		params += "," + more
	}
	id, raw := v.body("tools/call", params, meta)
	return id, w.post(v, raw, append([]string{"Mcp-Name", tool}, header...)...)
}

// keyed calls a tool with a key in _meta, and checks the id.
func (w *world) keyed(v version, tool, key, arguments string) *answer {
	w.t.Helper()
	id, a := w.call(v, tool, arguments, "", `"idempotency-key":"`+key+`"`)
	if a.id != id {
		w.t.Errorf("asked under %s, and answered under %s: %s", id, a.id, a.text)
	}
	return a
}

// request is a POST with the headers of a version.
func (w *world) request(v version, raw string, header ...string) *http.Request {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, w.url, strings.NewReader(raw))
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	r.Header.Set("Mcp-Protocol-Version", string(v))
	if method, is := jsonscan.Text(jsonscan.Member([]byte(raw), "method")); is && v == modern {
		r.Header.Set("Mcp-Method", method)
	}
	for i := 0; i < len(header); i += 2 {
		if r.Header.Set(header[i], header[i+1]); header[i+1] == "" || header[i] == "Mcp-Name" && v != modern {
			r.Header.Del(header[i])
		}
	}
	return r
}

func (w *world) post(v version, raw string, header ...string) *answer {
	w.t.Helper()
	resp, err := w.client.Do(w.request(v, raw, header...))
	if err != nil {
		w.t.Error(err)
		return &answer{}
	}
	defer resp.Body.Close()
	return read(w.t, resp)
}

// read reads an answer, of one response or a stream of events.
func read(t *testing.T, resp *http.Response) *answer {
	t.Helper()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	a := &answer{status: resp.StatusCode, header: resp.Header, text: string(raw)}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		for line := range bytes.Lines(raw) {
			if data, ok := bytes.CutPrefix(line, []byte("data: ")); ok {
				raw, a.events = data, a.events+1
			}
		}
	}
	var o object
	if json.Unmarshal(raw, &o) != nil {
		return a
	}
	a.id = string(jsonscan.Member(raw, "id"))
	a.result, _ = o["result"].(object)
	if code, ok := member(o, "error", "code").(float64); ok {
		a.rpc = int(code)
	}
	a.code, _ = member(a.result, "_meta", "io.github.semelhq/refusal", "code").(string)
	if code, ok := member(o, "error", "data", "semel", "code").(string); ok {
		a.code = code
	}
	for _, facts := range []any{member(a.result, "_meta", "io.github.semelhq/refusal"), member(o, "error", "data", "semel")} {
		if action, ok := member(facts, "action").(string); ok {
			a.action = store.Action(action)
		}
	}
	return a
}

// said is the text of a result.
func (a *answer) said() string {
	list, _ := a.result["content"].([]any)
	if len(list) == 0 {
		return ""
	}
	text, _ := member(list[0], "text").(string)
	return text
}

// replayed reports whether the answer says that it is that of another call.
func (a *answer) replayed() bool {
	return member(a.result, "_meta", "io.github.semelhq/replayed") == true || a.result == nil && a.header.Get("Idempotency-Replayed") == "true"
}

func urlOf(t *testing.T, text string) *url.URL {
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}
