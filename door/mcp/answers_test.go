package mcp_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/mcp"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
)

// TestAnswers: what a server's answer, or somebody's in front of it, proves.
func TestAnswers(t *testing.T) {
	clause.Proves(t, "IDS-V.2")
	failure := func(code int) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":ID,"error":{"code":%d,"message":"no"}}`, code)
	}
	result := func(more string) string {
		return `{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"ok"}]` + more + `}}`
	}
	for _, c := range []struct {
		name   string
		status int
		header string
		body   string
		sent   int64  // after the second delivery
		first  string // the code that the first caller gets; empty: the server's own answer
		second string // "same": what the first got
	}{
		{"a result", 200, "", result(""), 1, "", "same"},
		{"a result that needs input", 200, "", result(`,"resultType":"input_required","requestState":"s"`), 1, "", "same"},
		{"the tool reports an error", 200, "", result(`,"isError":true`), 2, "", "same"},
		{"parameters that aren't valid", 200, "", failure(-32602), 1, "", "same"},
		{"parameters that aren't valid, with a status", 400, "", failure(-32602), 1, "", "same"},
		{"headers that contradict the body", 400, "", failure(-32020), 2, "", "same"},
		{"a capability is missing", 400, "", failure(-32021), 2, "", "same"},
		{"an elicitation is wanted", 200, "", failure(-32042), 2, "", "same"},
		{"an internal error", 200, "", failure(-32603), 2, "", "same"},
		{"an error that nobody knows", 200, "", failure(7), 2, "", "same"},
		{"401", 401, "WWW-Authenticate: Bearer resource_metadata=x", "no", 2, "", "same"},
		{"404 of a session that is over", 404, "", "session not found", 2, "", "same"},
		{"400 that is no JSON-RPC", 400, "", "no", 1, "", "-32600"},
		{"429", 429, "", "", 2, "", "same"},
		{"500", 500, "", "oops", 2, "", "same"},
		{"502 of a gateway", 502, "", "<h1>Bad gateway</h1>", 1, "held", "held"},
		{"503 of a gateway", 503, "Retry-After: 1", "no", 1, "held", "held"},
		{"504 of a gateway", 504, "", failure(-32603), 1, "held", "held"},
		{"nothing was done", 503, "Semel-Effect: none", "no", 2, "", "same"},
		{"something may have been done", 200, "Semel-Effect: unknown", result(""), 1, "held", "held"},
		{"another id", 200, "", strings.Replace(result(""), "ID", `"other"`, 1), 1, "held", "held"},
		{"two answers", 200, "", result("") + result(""), 1, "held", "held"},
		{"a result and an error", 200, "", strings.TrimSuffix(result(""), "}") + `,"error":{"code":1}}`, 1, "held", "held"},
		{"a page", 200, "", "<html>", 1, "held", "held"},
		{"nothing", 202, "", "", 1, "held", "held"},
		{"a redirect", 302, "Location: /x", "", 1, "held", "held"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := open(t, mcp.GatewayOptions{})
			w.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
			w.answer = func(rw http.ResponseWriter, _ *http.Request, id string, _ object) {
				if name, value, ok := strings.Cut(c.header, ": "); ok {
					rw.Header().Set(name, value)
				}
				rw.WriteHeader(c.status)
				_, _ = io.WriteString(rw, strings.ReplaceAll(c.body, "ID", id))
			}
			call := func() (string, *answer) {
				return w.call(middle, "pay", `{}`, "", `"idempotency-key":"k-1"`, "Mcp-Session-Id", "s-1")
			}
			id, first := call()
			if want := strings.ReplaceAll(c.body, "ID", id); c.first == "" && (first.status != c.status || first.text != want) || first.code != c.first {
				t.Errorf("the first got %d %s", first.status, first.text)
			}
			again, second := call()
			if n := w.runs.Load(); n != c.sent {
				t.Errorf("it was sent %d times", n)
			}
			switch {
			case c.second == "same" && c.sent == 2:
				if second.status != c.status || second.text != strings.ReplaceAll(c.body, "ID", again) {
					t.Errorf("the second got %d %s", second.status, second.text)
				}
			case c.second == "same":
				if second.id != again || second.rpc != first.rpc || second.said() != first.said() || !second.replayed() || second.status != first.status {
					t.Errorf("the second got %d %s", second.status, second.text)
				}
			case strings.HasPrefix(c.second, "-"):
				if fmt.Sprint(second.rpc) != c.second || second.id != again {
					t.Errorf("the second got %d %s", second.status, second.text)
				}
			case second.code != c.second || second.id != again:
				t.Errorf("the second got %d %s", second.status, second.text)
			}
		})
	}
}

// TestStreams: events pass at once, the response under its id once it is recorded; a stream that
// ends or breaks off before proves nothing, and a second response is none.
func TestStreams(t *testing.T) {
	const response = `data: {"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"ok"}]}}` + "\n\n"
	const progress = "event: message\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{}}\n\n"
	for _, c := range []struct {
		name, text string
		broken     bool
		code       string
	}{
		{"a response", progress + response, false, ""},
		{"a response, and the stream stays open", progress + response + "OPEN", false, ""},
		{"a response, and the stream breaks off", progress + response, true, ""},
		{"two responses", progress + response + strings.Replace(response, "ok", "no", 1), false, ""},
		{"a question of the server", `data: {"jsonrpc":"2.0","id":ID,"method":"sampling/createMessage","params":{}}` + "\n\n" + response, false, ""},
		{"no response", progress, false, "held"},
		{"it breaks off", progress, true, "held"},
		{"a response to something else", strings.Replace(response, "ID", "-7", 1), false, "held"},
		{"garbage", "data: {{\n\n:\n\nx\n\n", false, "held"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := open(t, mcp.GatewayOptions{})
			w.answer = func(rw http.ResponseWriter, r *http.Request, id string, _ object) {
				rw.Header().Set("Content-Type", "text/event-stream")
				text, stays := strings.CutSuffix(c.text, "OPEN")
				_, _ = io.WriteString(rw, strings.ReplaceAll(text, "ID", id))
				_ = http.NewResponseController(rw).Flush()
				if stays {
					<-r.Context().Done()
				}
				if c.broken {
					panic(http.ErrAbortHandler)
				}
			}
			first, second := w.keyed(modern, "pay", "k-1", `{}`), w.keyed(modern, "pay", "k-1", `{}`)
			if first.code != c.code || second.code != c.code || w.runs.Load() != 1 || c.code == "" && (first.said() != "ok" || second.said() != "ok") {
				t.Errorf("%d runs: %s\nthen %s", w.runs.Load(), first.text, second.text)
			}
			if n := strings.Count(first.text, `"result"`); n != 1 || first.header.Get("X-Accel-Buffering") != "no" {
				t.Errorf("%d responses: %v", n, first.header)
			}
		})
	}
	t.Run("10,000 events", func(t *testing.T) {
		w := open(t, mcp.GatewayOptions{})
		w.answer = func(rw http.ResponseWriter, _ *http.Request, id string, _ object) {
			rw.Header().Set("Content-Type", "text/event-stream")
			for range 10_000 {
				_, _ = io.WriteString(rw, progress)
			}
			_, _ = io.WriteString(rw, strings.ReplaceAll(response, "ID", id))
		}
		if got := w.keyed(modern, "pay", "k-1", `{}`); got.events != 10_001 || got.said() != "ok" {
			t.Errorf("%d events", got.events)
		}
	})
}

// TestUnknown: a call whose outcome nobody knows is told in words and facts that a model
// understands, is not repeated, and has the outcome that whoever settles it gives.
func TestUnknown(t *testing.T) {
	w := open(t, mcp.GatewayOptions{Timeout: 50 * time.Millisecond, Tools: map[string]mcp.Tool{"cancel": {VerifyWith: []string{"orders"}}, "look": {ReadOnly: true}}})
	w.answer = func(_ http.ResponseWriter, r *http.Request, _ string, _ object) { <-r.Context().Done() } // never answers
	w.post(middle, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	for tool, verify := range map[string]string{"refund": "look search", "pay": "look search", "cancel": "orders"} {
		for range 2 {
			got := w.keyed(modern, tool, "k-"+tool, `{}`)
			facts := member(got.result, "_meta", "io.github.semelhq/refusal")
			if got.status != 200 || got.result["isError"] != true || got.result["resultType"] != "complete" || got.header.Get("Semel-Effect") != "unknown" || !strings.Contains(got.said(), "Don't call the tool again") || !strings.Contains(got.said(), strings.ReplaceAll(verify, " ", ", ")) {
				t.Errorf("%s", got.text)
			}
			if member(facts, "outcome") != "unknown" || member(facts, "action") != "verify" || fmt.Sprint(member(facts, "verify_with")) != "["+verify+"]" {
				t.Errorf("%v", facts)
			}
			// A client compares it with the schema that the tool has for its output.
			if structured := got.result["structuredContent"]; (structured == nil) != (tool == "pay") {
				t.Errorf("%s: %v", tool, structured)
			}
		}
	}
	if w.runs.Load() != 3 {
		t.Errorf("%d runs", w.runs.Load())
	}
	for tool, settled := range map[string]struct{ given, said string }{
		"refund": {`{"content":[{"type":"text","text":"refunded"}],"structuredContent":{}}`, "refunded"},
		"pay":    {"it was paid by hand", "it was paid by hand"},
		"cancel": {`{"order":"o-1"}`, `{"order":"o-1"}`},
	} {
		page, err := w.Engine.Search(t.Context(), store.Query{Attributes: map[string]string{"tool": tool}})
		if err != nil || len(page.Records) != 1 || !page.Records[0].Held || page.Records[0].HeldReason == "" {
			t.Fatalf("%+v, %v", page.Records, err)
		}
		settlement := semel.Settlement{Outcome: semel.DispositionCompleted, Result: semel.Result{Data: []byte(settled.given)}, Who: "op"}
		if _, err := w.Engine.Settle(t.Context(), page.Records[0].ID, settlement, "looked"); err != nil {
			t.Fatal(err)
		}
		if got := w.keyed(modern, tool, "k-"+tool, `{}`); got.said() != settled.said || !got.replayed() || got.result["resultType"] != "complete" {
			t.Errorf("%s", got.text)
		}
	}
}

// TestUnreachable: a server that can't be reached leaves nothing, and the next try runs.
func TestUnreachable(t *testing.T) {
	w := open(t, mcp.GatewayOptions{})
	dead := w.request(modern, "").URL
	dead.Host = "127.0.0.1:1"
	g, err := mcp.NewGateway(w.Guard, mcp.GatewayOptions{Operation: operation, Upstream: dead})
	if err != nil {
		t.Fatal(err)
	}
	alive := w.url
	w.url = listen(t, g)
	got := w.keyed(modern, "pay", "k-1", `{}`)
	if facts := got.result["structuredContent"]; got.code != "upstream_unreachable" || member(facts, "outcome") != "not_run" || member(facts, "action") != "wait" {
		t.Errorf("%s", got.text)
	}
	if list := w.post(middle, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`); list.status != http.StatusBadGateway {
		t.Errorf("%d %s", list.status, list.text)
	}
	w.url = alive
	if got := w.keyed(modern, "pay", "k-1", `{}`); got.said() != "run 1" || got.replayed() {
		t.Errorf("%s", got.text)
	}
}

// TestClientThatNeverReads: it holds nobody up, and whoever asks again gets the result.
func TestClientThatNeverReads(t *testing.T) {
	w := open(t, mcp.GatewayOptions{Timeout: 400 * time.Millisecond, Wait: time.Minute})
	event := "data: " + strings.Repeat("x", 1<<10) + "\n\n"
	w.answer = func(rw http.ResponseWriter, _ *http.Request, id string, _ object) {
		rw.Header().Set("Content-Type", "text/event-stream")
		for range 10_000 {
			_, _ = io.WriteString(rw, event)
		}
		_, _ = io.WriteString(rw, `data: {"jsonrpc":"2.0","id":`+id+`,"result":{"content":[{"type":"text","text":"ok"}]}}`+"\n\n")
	}
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, raw := modern.body("tools/call", `"name":"pay","arguments":{}`, `"idempotency-key":"k-1"`)
	if err := w.request(modern, raw, "Mcp-Name", "pay").Write(conn); err != nil {
		t.Fatal(err)
	}
	<-w.began
	if got := w.keyed(modern, "pay", "k-1", `{}`); got.said() != "ok" || !got.replayed() || w.runs.Load() != 1 {
		t.Errorf("%d runs: %s", w.runs.Load(), got.text[:min(len(got.text), 300)])
	}
}

// TestServerDies: a server that takes the call and goes away leaves it unknown, however far its answer
// was; nothing runs twice.
func TestServerDies(t *testing.T) {
	for name, part := range map[string]string{"without a word": "", "after the head": " ", "in the answer": `{"jsonrpc":"2.0","id":`} {
		for _, v := range all {
			t.Run(name+", "+string(v), func(t *testing.T) {
				w := open(t, mcp.GatewayOptions{})
				w.answer = func(rw http.ResponseWriter, _ *http.Request, _ string, _ object) {
					if part != "" {
						rw.Header().Set("Content-Type", "application/json")
						_, _ = io.WriteString(rw, part)
						_ = http.NewResponseController(rw).Flush()
					}
					panic(http.ErrAbortHandler)
				}
				for range 2 {
					if got := w.keyed(v, "pay", "k-1", `{}`); got.code != "held" || got.status != 200 || w.runs.Load() != 1 {
						t.Errorf("%d runs: %d %s", w.runs.Load(), got.status, got.text)
					}
				}
			})
		}
	}
}
