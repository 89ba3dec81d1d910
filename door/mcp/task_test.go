package mcp_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/mcp"
	"github.com/semelhq/semel/door/semelhttp/semelhttptest"
	"github.com/semelhq/semel/internal/jsonscan"
	"github.com/semelhq/semel/store"
)

// tasks is a server of which each tool call becomes a task.
type tasks struct {
	*server
	asked  chan struct{} // gets a value for each tasks/get that waits
	end    chan struct{} // closed when the tasks end
	ended  string        // the members of a task that has
	stream bool          // tasks/get is answered by a stream, which stays open
	status atomic.Int64  // of the answer to tasks/get; zero: 200
}

func newTasks() *tasks {
	s := &tasks{server: newServer(), asked: make(chan struct{}), end: make(chan struct{}), ended: `"status":"completed","result":{"content":[{"type":"text","text":"paid"}]}`}
	s.answer = func(w http.ResponseWriter, r *http.Request, id string, _ object) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"resultType":"task","taskId":"task-%d","status":"working","ttlMs":60000,"pollIntervalMs":1}}`, id, run(r))
	}
	s.other = func(w http.ResponseWriter, r *http.Request, method string, raw []byte) bool {
		id, params := jsonscan.Member(raw, "id"), jsonscan.Member(raw, "params")
		task, _ := jsonscan.Text(jsonscan.Member(params, "taskId"))
		switch {
		case method != "tasks/get" || r.Header.Get("Mcp-Method") != method || r.Header.Get("Mcp-Name") != task || !strings.Contains(string(params), "io.modelcontextprotocol/tasks"):
			return false
		case s.status.Load() != 0:
			w.WriteHeader(int(s.status.Load()))
			return true
		}
		members := `"status":"working"`
		select {
		case <-s.end:
			members = s.ended
		case s.asked <- struct{}{}:
		default:
		}
		text := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete","taskId":%q,%s}}`, id, task, members)
		if s.stream {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprintf(w, "data: %s\n\n", text)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return true
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, text)
		return true
	}
	return s
}

// declaring is a _meta that declares the extension, and a key.
const declaring = `"idempotency-key":"k-1","io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}`

// withTasks calls a tool as a client that declares the extension.
func (w *world) withTasks(header ...string) *answer {
	w.t.Helper()
	raw := fmt.Sprintf(`{"jsonrpc":"2.0","id":"t-%d","method":"tools/call","params":{"name":"pay","arguments":{},"_meta":{%s}}}`, ids.Add(1), declaring)
	return w.post(modern, raw, append([]string{"Mcp-Name", "pay"}, header...)...)
}

// TestTasks: a duplicate of a call that became a task gets that task if it can take one, and else
// waits for the result, which the gateway fetches and keeps for longer than the server does.
func TestTasks(t *testing.T) {
	for _, stream := range []bool{false, true} {
		t.Run(fmt.Sprint("stream ", stream), func(t *testing.T) {
			s := newTasks()
			s.stream = stream
			w := behind(t, s.server, mcp.GatewayOptions{})
			for i := range 2 {
				if got := w.withTasks(); got.result["taskId"] != "task-1" || got.replayed() != (i > 0) {
					t.Fatalf("%s", got.text)
				}
			}
			var waiting sync.WaitGroup
			for range 3 {
				waiting.Go(func() {
					if got := w.keyed(modern, "pay", "k-1", `{}`); got.said() != "paid" || !got.replayed() {
						t.Errorf("%s", got.text)
					}
				})
			}
			<-s.asked
			<-s.asked
			close(s.end)
			waiting.Wait()
			s.status.Store(404) // the server has forgotten it
			w.Store.Advance(time.Minute)
			if got := w.withTasks(); got.said() != "paid" || w.runs.Load() != 1 {
				t.Errorf("%d runs: %s", w.runs.Load(), got.text)
			}
		})
	}
	for name, c := range map[string]struct{ ended, want string }{
		"failed":      {`"status":"failed","error":{"code":-32602,"message":"no such order"}`, `"error":{"code":-32602,"message":"no such order"}`},
		"cancelled":   {`"status":"cancelled"`, `The task was cancelled.`},
		"with errors": {`"status":"completed","result":{"content":[],"isError":true}`, `"isError":true`},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTasks()
			s.ended = c.ended
			close(s.end)
			w := behind(t, s.server, mcp.GatewayOptions{})
			w.withTasks()
			if got := w.keyed(modern, "pay", "k-1", `{}`); !strings.Contains(got.text, c.want) {
				t.Errorf("%s", got.text)
			}
		})
	}
	t.Run("the first caller's credential ends", func(t *testing.T) {
		s := newTasks()
		s.status.Store(401)
		w := behind(t, s.server, mcp.GatewayOptions{})
		w.withTasks()
		got := w.keyed(modern, "pay", "k-1", `{}`)
		if got.rpc != -32021 || got.status != 400 || !strings.Contains(got.text, `"requiredCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}`) || got.header.Get("Semel-Effect") != "" {
			t.Errorf("%d %v %s", got.status, got.header, got.text)
		}
		s.status.Store(0) // another has one
		close(s.end)
		if got := w.keyed(modern, "pay", "k-1", `{}`); got.said() != "paid" || !got.replayed() || w.runs.Load() != 1 {
			t.Errorf("%s", got.text)
		}
	})
	t.Run("it doesn't end", func(t *testing.T) {
		s := newTasks()
		w := behind(t, s.server, mcp.GatewayOptions{Wait: 20 * time.Millisecond})
		w.withTasks()
		if got := w.keyed(modern, "pay", "k-1", `{}`); got.rpc != -32021 {
			t.Errorf("%s", got.text)
		}
		w.gateway.Close() // which ends the following, and another gateway goes on
		close(s.end)
		if got := w.keyed(modern, "pay", "k-1", `{}`); got.said() != "paid" {
			t.Errorf("%s", got.text)
		}
	})
	t.Run("another caller", func(t *testing.T) {
		s := newTasks()
		w := behind(t, s.server, mcp.GatewayOptions{})
		w.withTasks()
		if got := w.withTasks(semelhttptest.CallerHeader, "eve"); got.result["taskId"] != "task-2" {
			t.Errorf("%s", got.text)
		}
	})
}

// TestTheTaskOfALaterCall: a call whose record was purged runs again, and a duplicate gets the result of
// the task that it has then, not of the first.
func TestTheTaskOfALaterCall(t *testing.T) {
	s := newTasks()
	close(s.end)
	w := behind(t, s.server, mcp.GatewayOptions{})
	for _, task := range []string{"task-1", "task-2"} {
		if got := w.withTasks(); got.result["taskId"] != task {
			t.Fatalf("%s", got.text)
		}
		if got := w.keyed(modern, "pay", "k-1", `{}`); got.said() != "paid" || !got.replayed() {
			t.Errorf("%s: %s", task, got.text)
		}
		w.Store.Advance(time.Minute)
		page, err := w.Engine.Search(t.Context(), store.Query{Operation: operation.Name, Key: "k-1"})
		if err != nil || len(page.Records) != 1 {
			t.Fatal(page, err)
		}
		if err := w.Engine.Purge(t.Context(), page.Records[0].ID, semel.Removal{Reason: "run it again"}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTaskMethodsPass: what a client asks of its task is the server's.
func TestTaskMethodsPass(t *testing.T) {
	w := open(t, mcp.GatewayOptions{})
	for _, method := range []string{"tasks/get", "tasks/update", "tasks/cancel"} {
		_, raw := modern.body(method, `"taskId":"task-1","inputResponses":{"q":{}}`, "")
		if got := w.post(modern, raw, "Mcp-Name", "task-1"); got.text != fmt.Sprintf(` {"echo": %q}`, raw) || got.header.Get("X-Server") != "plain" {
			t.Errorf("%s: %s", method, got.text)
		}
	}
}

// TestNobodyFollowsATaskForEver: the gateway gives up a task that never ends when the server may forget
// it, and at the latest when the call is forgotten. Another then may follow it.
func TestNobodyFollowsATaskForEver(t *testing.T) {
	for _, c := range []struct{ ttl, life time.Duration }{
		{0, semel.DefaultWindow}, {time.Millisecond, mcp.DefaultTimeout}, {time.Hour, time.Hour}, {10 * semel.DefaultWindow, semel.DefaultWindow},
	} {
		t.Run(c.ttl.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := semelhttptest.New(t, nil)
				g, err := mcp.NewGateway(s.Guard, mcp.GatewayOptions{Operation: operation, Upstream: urlOf(t, "http://127.0.0.1:1")}) // where nobody answers
				if err != nil {
					t.Fatal(err)
				}
				defer g.Close()
				ctx, cancel := context.WithTimeout(t.Context(), 2*semel.DefaultWindow)
				defer cancel()
				for range 2 {
					began := time.Now()
					ans, err := g.FollowTask(ctx, httptest.NewRequest(http.MethodPost, "/", nil), c.ttl)
					if took := time.Since(began); err != nil || ans.Decision != semel.Execute || took != c.life {
						t.Errorf("%s after %v, %v", ans.Decision, took, err)
					}
					if c.life == semel.DefaultWindow {
						break
					}
				}
			})
		})
	}
}
