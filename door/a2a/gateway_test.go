package a2a_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/semelhq/semel"
	once "github.com/semelhq/semel/door/a2a"
	"github.com/semelhq/semel/door/semelhttp/semelhttptest"
	"github.com/semelhq/semel/internal/body"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
)

// scripted is an upstream that answers messages as a test says, and nothing else.
func scripted(t *testing.T, opts once.GatewayOptions, answer func(w http.ResponseWriter, id string)) (*world, *atomic.Int64) {
	opts.Operation = operation
	return scriptedBy(t, opts, answer)
}

// scriptedBy is scripted with an operation of the test's.
func scriptedBy(t *testing.T, opts once.GatewayOptions, answer func(w http.ResponseWriter, id string)) (*world, *atomic.Int64) {
	var sent atomic.Int64
	w := gateway(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		if !strings.Contains(string(raw), "Message") && !strings.HasSuffix(r.URL.Path, ":send") {
			http.NotFound(w, r)
			return
		}
		sent.Add(1)
		_, id, _ := strings.Cut(string(raw), `"id":`)
		id, _, _ = strings.Cut(id, ",")
		w.Header().Set("Content-Type", "application/json")
		answer(w, id)
	}), opts)
	return w, &sent
}

const done = `{"task":{"id":"T1","contextId":"c","status":{"state":"TASK_STATE_COMPLETED"}}}`

// TestAnswers: what an agent's answer, or somebody's in front of it, proves. The first caller
// gets it as it came.
func TestAnswers(t *testing.T) {
	clause.Proves(t, "MAP-A2A.1")
	rpcError := func(code int) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":ID,"error":{"code":%d,"message":"no"}}`, code)
	}
	result := func(result string) string { return `{"jsonrpc":"2.0","id":ID,"result":` + result + `}` }
	for _, c := range []struct {
		name   string
		b      binding
		status int
		header string
		body   string
		sent   int64  // after the second delivery
		code   string // of the second delivery; "same": it gets what the first got
	}{
		{"a task", rpc, 200, "", result(done), 1, "same"},
		{"a task over REST", rest, 200, "", done, 1, "same"},
		{"a task in no final state, of an agent that forgets it", rpc, 200, "", result(strings.Replace(done, "COMPLETED", "WORKING", 1)), 1, "same"},
		{"502 of a gateway", rpc, 502, "", "<h1>Bad gateway</h1>", 1, "held"},
		{"503 of a gateway", rpc, 503, "", "no", 1, "held"},
		{"504 of a gateway", rest, 504, "", `{"error":{"code":504}}`, 1, "held"},
		{"503 that says when", rpc, 503, "Retry-After: 1", "no", 1, "held"},
		{"429", rest, 429, "", `{"error":{"code":429}}`, 2, "same"},
		{"400 of the agent", rest, 400, "", `{"error":{"code":400,"message":"no"}}`, 1, "same"},
		{"400 that isn't JSON", rest, 400, "", `no`, 1, "rejected"},
		{"500 of the agent", rest, 500, "", `{"error":{"code":500,"message":"no"}}`, 1, "same"},
		{"no such task", rpc, 200, "", rpcError(-32001), 1, "same"},
		{"an internal error", rpc, 200, "", rpcError(-32603), 1, "same"},
		{"an error that nobody knows", rpc, 200, "", rpcError(7), 1, "same"},
		{"another agent's answer that isn't valid", rpc, 200, "", rpcError(-32006), 1, "held"},
		{"nothing was done", rpc, 200, "Semel-Effect: none", rpcError(-32603), 2, "same"},
		{"something may have been done", rpc, 200, "Semel-Effect: unknown", rpcError(-32602), 1, "held"},
		{"another id", rpc, 200, "", strings.Replace(result(done), "ID", `"other"`, 1), 1, "held"},
		{"two answers", rpc, 200, "", result(done) + result(done), 1, "held"},
		{"a result and an error", rpc, 200, "", strings.Replace(result(done), "}}}}", `}}},"error":{"code":1}}`, 1), 1, "held"},
		{"a page", rpc, 200, "", "<html>", 1, "held"},
		{"a result that is none", rpc, 200, "", result(`{"x":1}`), 1, "held"},
		{"a task without an id", rpc, 200, "", result(`{"task":{"status":{"state":"TASK_STATE_COMPLETED"}}}`), 1, "held"},
		{"a redirect", rpc, 302, "Location: /x", "", 1, "held"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, sent := scripted(t, once.GatewayOptions{Timeout: time.Minute}, func(w http.ResponseWriter, id string) {
				if name, value, ok := strings.Cut(c.header, ": "); ok {
					w.Header().Set(name, value)
				}
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, strings.ReplaceAll(c.body, "ID", id))
			})
			client := http.DefaultClient.CheckRedirect
			http.DefaultClient.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
			defer func() { http.DefaultClient.CheckRedirect = client }()
			path, raw := c.b.body("m-1", "", "pay", false)
			first := w.post(path, raw)
			id := fmt.Sprint(ids.Load())
			if c.code == "held" && c.status < 400 && !strings.Contains(c.body, `"error":{"code":-`) {
				if first.code != "unknown" { // it isn't told as a success
					t.Errorf("the first caller got %d %s", first.status, first.text)
				}
			} else if want := strings.ReplaceAll(c.body, "ID", id); first.status != c.status || first.text != want || first.header.Get("Semel-Effect") != "" {
				t.Errorf("the first caller got %d %s", first.status, first.text)
			}
			again := w.post(path, raw)
			if n := sent.Load(); n != c.sent {
				t.Errorf("it was sent %d times", n)
			}
			switch {
			case c.code != "same" && again.code != c.code:
				t.Errorf("the second got %d %s", again.status, again.text)
			case c.code == "same" && (again.status != first.status || again.text != first.text):
				t.Errorf("the second got %d %s", again.status, again.text)
			}
		})
	}
}

// TestStreams: what a stream proves that ends, or breaks off, too early.
func TestStreams(t *testing.T) {
	const working = `{"task":{"id":"T1","contextId":"c","status":{"state":"TASK_STATE_WORKING"}}}`
	for _, c := range []struct {
		name   string
		events []string
		broken bool
		code   string // of the second delivery
		state  string
	}{
		{"it ends with the task", []string{working, done}, false, "", ""}, // which the agent forgets
		{"it breaks off after the task", []string{working}, true, "result_not_kept", ""},
		{"it breaks off before", nil, true, "held", ""},
		{"it ends before", nil, false, "held", ""},
		{"an error", []string{`ERROR-32602`}, false, "-32602", ""},
		{"a message", []string{`{"message":{"messageId":"a","role":"ROLE_AGENT","parts":[]}}`}, false, "", ""},
		{"nonsense", []string{`7`}, false, "held", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, sent := scripted(t, once.GatewayOptions{}, func(w http.ResponseWriter, id string) {
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, ": alive\n\n")
				for _, e := range c.events {
					text := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, id, e)
					if code, is := strings.CutPrefix(e, "ERROR"); is {
						text = fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":%s,"message":"no"}}`, id, code)
					}
					fmt.Fprintf(w, "data: %s\r\n\r\n", text)
				}
				_ = http.NewResponseController(w).Flush()
				if c.broken {
					panic(http.ErrAbortHandler)
				}
			})
			first := w.send(rpc, "m-1", "", "pay", true)
			if got := len(first.events); got != len(c.events) && !(got == len(c.events)+1 && first.code == "unknown") {
				t.Errorf("the first caller got %s", first.text)
			}
			if again := w.send(rpc, "m-1", "", "pay", true); again.code != c.code || sent.Load() != 1 {
				t.Errorf("sent %d times; the second got %s", sent.Load(), again.text)
			}
		})
	}
}

// TestSilence: an agent that never answers leaves the message held, with a reason, and one
// that can't be reached leaves nothing.
func TestSilence(t *testing.T) {
	stop := make(chan struct{})
	defer close(stop)
	w, sent := scripted(t, once.GatewayOptions{Timeout: 50 * time.Millisecond}, func(http.ResponseWriter, string) { <-stop })
	first, again := w.send(rpc, "m-1", "", "pay", false), w.send(rpc, "m-1", "", "pay", false)
	if first.code != "unknown" || again.code != "held" || sent.Load() != 1 {
		t.Errorf("%s\n%s", first.text, again.text)
	}
	page, err := w.Engine.Search(t.Context(), store.Query{Operation: operation.Name})
	if err != nil || len(page.Records) != 1 || !page.Records[0].Held || page.Records[0].HeldReason == "" {
		t.Errorf("%+v, %v", page.Records, err)
	}

	upstream := httptest.NewServer(nil)
	upstream.Close()
	u, _ := url.Parse(upstream.URL)
	g, err := once.NewGateway(w.Guard, once.GatewayOptions{Operation: semel.Operation{Name: "others"}, Upstream: u})
	if err != nil {
		t.Fatal(err)
	}
	w.url = listen(t, g)
	for range 2 {
		if got := w.send(rest, "m-1", "", "pay", false); got.status != http.StatusBadGateway || got.code != "upstream_unreachable" {
			t.Errorf("%d %s", got.status, got.text)
		}
	}
}

// TestInput: what isn't a message gets the error of its binding, and nothing is sent on,
// recorded or held.
func TestInput(t *testing.T) {
	w, sent := scripted(t, once.GatewayOptions{MaxBody: 1 << 20}, func(w http.ResponseWriter, id string) {
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, id, done)
	})
	const message = `{"messageId":"m-1","role":"ROLE_USER","parts":[{"text":"pay"}]}`
	request := func(method, params string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":` + params + `}`
	}
	valid := request("SendMessage", `{"message":`+message+`}`)
	swap := func(old, new string) string {
		if !strings.Contains(valid, old) {
			t.Fatal(old)
		}
		return strings.Replace(valid, old, new, 1)
	}
	for _, c := range []struct {
		name, path, body string
		status           int
		text             string
	}{
		{"nothing", "/rpc", ``, 200, `"code":-32700`},
		{"no JSON", "/rpc", `{`, 200, `"code":-32700`},
		{"two requests", "/rpc", valid + valid, 200, `"code":-32700`},
		{"a name twice", "/rpc", swap(`"messageId":"m-1"`, `"messageId":"m-1","messageId":"m-2"`), 200, `"code":-32700`},
		{"two methods", "/rpc", swap(`"id":1`, `"id":1,"method":"GetTask"`), 200, `"code":-32700`},
		{"a batch", "/rpc", "[" + valid + "]", 200, `"id":null,"error":{"code":-32600`},
		{"a number", "/rpc", "7", 200, `"code":-32600`},
		{"another spelling of the method", "/rpc", strings.Replace(request("GetTask", `{}`), `"id":1`, `"id":1,"Method":"SendMessage"`, 1), 200, `"id":1,"error":{"code":-32600`},
		{"another version", "/rpc", swap(`"2.0"`, `"1.0"`), 200, `"code":-32600`},
		{"no method", "/rpc", `{"jsonrpc":"2.0","id":1}`, 200, `"code":-32600`},
		{"no id", "/rpc", swap(`"id":1,`, ``), 200, `"code":-32600`},
		{"an id that is none", "/rpc", swap(`"id":1`, `"id":{}`), 200, `"id":null,"error":{"code":-32600`},
		{"an unknown method", "/rpc", request("RunEverything", `{}`), 200, `"id":1,"error":{"code":-32601`},
		{"a method in another case", "/rpc", request("sendmessage", `{}`), 200, `"code":-32601`},
		{"parameters that are a list", "/rpc", request("SendMessage", `[]`), 200, `"code":-32602`},
		{"no message", "/rpc", request("SendMessage", `{}`), 200, `"code":-32602`},
		{"no messageId", "/rpc", swap(`"messageId":"m-1",`, ``), 200, `"code":-32602`},
		{"an empty messageId", "/rpc", swap(`"m-1"`, `""`), 200, `"code":-32602`},
		{"a messageId that is a number", "/rpc", swap(`"m-1"`, `7`), 200, `"code":-32602`},
		{"a messageId that is too long", "/rpc", swap(`m-1`, strings.Repeat("m", 1025)), 200, `"code":-32602`},
		{"two spellings of the messageId", "/rpc", swap(`"messageId":"m-1"`, `"messageId":"m-1","message_id":"m-2"`), 200, `"code":-32602`},
		{"another case of the messageId", "/rpc", swap(`"messageId":"m-1"`, `"messageId":"m-1","MessageID":"m-2"`), 200, `"code":-32602`},
		{"another message", "/rpc", swap(`{"message":`, `{"request":{},"message":`), 200, `"code":-32602`},
		{"two keys", "/rpc a b", valid, 200, `"code":-32602`},
		{"a body that is too large", "/rpc", swap("pay", strings.Repeat("x", 10<<20)), 413, `"reason":"BODY_TOO_LARGE"`},
		{"REST without JSON", "/rest/message:send", `{`, 400, `"status":"INVALID_ARGUMENT"`},
		{"REST with a batch", "/rest/message:send", `[]`, 400, `INVALID_ARGUMENT`},
		{"REST without a message", "/rest/message:send", `{}`, 400, `INVALID_ARGUMENT`},
		{"a path with two readings", "/rest/tasks/../message:send", `{"message":` + message + `}`, 404, `NOT_FOUND`},
		{"a path with an empty part", "/rest//message:send", `{"message":` + message + `}`, 404, `NOT_FOUND`},
		{"a path in another case", "/rest/Message:Send", `{"message":` + message + `}`, 200, `"code":-32600`},
		{"a task within a path", "/rest/tasks/x%2F..%2F..%2Fmessage:send:cancel", `{"message":` + message + `}`, 404, `NOT_FOUND`},
	} {
		t.Run(c.name, func(t *testing.T) {
			path, key, _ := strings.Cut(c.path, " ")
			var header []string
			if key != "" {
				header = []string{"Idempotency-Key", key}
			}
			got := w.post(path, c.body, header...)
			if got.status != c.status || !strings.Contains(strings.ReplaceAll(got.text, " ", ""), c.text) && !strings.Contains(got.text, c.text) {
				t.Errorf("%d %s", got.status, got.text)
			}
			if n := sent.Load(); n != 0 {
				t.Fatalf("%d were sent on", n)
			}
		})
	}
	t.Run("another method of HTTP, and another type", func(t *testing.T) {
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodPut, w.url+"/rest/message:send", strings.NewReader("{}"))
		resp, err := http.DefaultClient.Do(r)
		if err != nil || resp.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("%v %v", resp, err)
		}
		defer resp.Body.Close()
		if got := w.post("/rpc", valid, "Content-Type", "text/plain"); got.status != http.StatusUnsupportedMediaType {
			t.Errorf("%d %s", got.status, got.text)
		}
		if got := w.post("/rpc", valid, "Content-Encoding", "gzip"); got.status != http.StatusUnsupportedMediaType || !strings.Contains(got.text, "Content-Encoding") {
			t.Errorf("compressed: %d %s", got.status, got.text)
		}
	})
	page, err := w.Engine.Search(t.Context(), store.Query{})
	if err != nil || len(page.Records) != 0 {
		t.Errorf("recorded: %+v, %v", page.Records, err)
	}
	if got := w.post("/rpc", valid); got.task() != "T1" || sent.Load() != 1 {
		t.Errorf("the valid one got %s", got.text)
	}
}

// TestRefusedBody: who ends the reading of a body answers the request, and the gateway doesn't.
func TestRefusedBody(t *testing.T) {
	w := behind(t, once.GatewayOptions{Operation: operation})
	r := httptest.NewRequest(http.MethodPost, "/rpc", io.NopCloser(iotest.ErrReader(body.ErrRefused)))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set(semelhttptest.CallerHeader, "tester")
	answer := httptest.NewRecorder()
	w.handler.ServeHTTP(answer, r)
	if answer.Body.Len() > 0 {
		t.Errorf("the gateway answered %s", answer.Body)
	}
}
