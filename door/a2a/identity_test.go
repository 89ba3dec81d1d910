package a2a_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	once "github.com/semelhq/semel/door/a2a"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
)

// TestIdentity: what makes two deliveries one message, and what keeps them apart.
func TestIdentity(t *testing.T) {
	send := func(more, params string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"SendMessage","params":{"message":{"messageId":"m-1","role":"ROLE_USER","parts":[{"text":"pay"}]%s}%s}}`, ids.Add(1), more, params)
	}
	const trace = `,"metadata":{"traceparent":"00-%d","tracestate":"x","baggage":"y"%s}`
	for form, open := range forms {
		for _, c := range []struct {
			name          string
			first, second string
			runs          int64
			code          string
		}{
			{"another trace", send(fmt.Sprintf(trace, 1, `,"order":1`), ""), send(fmt.Sprintf(trace, 2, `,"order":1`), ""), 1, ""},
			{"a trace that the first had not", send("", ""), send(fmt.Sprintf(trace, 1, ""), ""), 1, ""},
			{"other metadata of the message", send(fmt.Sprintf(trace, 1, `,"order":1`), ""), send(fmt.Sprintf(trace, 1, `,"order":2`), ""), 1, "conflict"},
			{"another configuration", send("", `,"configuration":{"historyLength":1}`), send("", `,"configuration":{"acceptedOutputModes":["text/plain"]}`), 1, ""},
			{"another context", send(`,"contextId":"a"`, ""), send(`,"contextId":"b"`, ""), 1, "conflict"},
			{"another order of members", send(`,"extensions":[],"referenceTaskIds":["a"]`, ""), send(`,"referenceTaskIds":["a"],"extensions":[]`, ""), 1, ""},
			{"another tenant", send("", `,"tenant":"a"`), send("", `,"tenant":"b"`), 2, ""},
		} {
			t.Run(form+", "+c.name, func(t *testing.T) {
				w := open(t)
				first, second := w.post("/rpc", c.first), w.post("/rpc", c.second)
				if first.code != "" || second.code != c.code || w.runs.Load() != c.runs {
					t.Errorf("%d runs: %s\n%s", w.runs.Load(), first.text, second.text)
				}
				if c.runs == 1 && c.code == "" && first.task() != second.task() {
					t.Errorf("%s and %s", first.task(), second.task())
				}
			})
		}
	}
	t.Run("another binding of a gateway is a conflict", func(t *testing.T) {
		w := forms["gateway"](t)
		if first, second := w.send(rpc, "m-1", "", "pay", false), w.send(rest, "m-1", "", "pay", false); first.code != "" || second.code != "conflict" || w.runs.Load() != 1 {
			t.Errorf("%d runs: %s\n%s", w.runs.Load(), first.text, second.text)
		}
	})
}

// TestRecords: a record says how far its task is, by the table of states.
func TestRecords(t *testing.T) {
	clause.Proves(t, "MAP-A2A.1")
	for form, open := range forms {
		for what, want := range map[string]struct {
			state       semel.State
			disposition store.Disposition
			says        once.State
		}{
			"pay":    {semel.Completed, semel.DispositionCompleted, once.Completed},
			"ask":    {semel.Completed, semel.DispositionCompleted, once.InProgress},
			"fail":   {semel.Failed, semel.DispositionRejected, once.Failed},
			"reject": {semel.Failed, semel.DispositionRejected, once.Failed},
		} {
			w := open(t)
			task := w.send(rpc, "m-1", "", what, false).task()
			page, err := w.Engine.Search(t.Context(), store.Query{Operation: operation.Name})
			if err != nil || len(page.Records) != 1 {
				t.Fatal(err)
			}
			rec := page.Records[0]
			if rec.State != want.state || rec.Disposition != want.disposition || !strings.HasPrefix(string(rec.Result.Data), fmt.Sprintf(`{"state":%q,"task":%q`, want.says, task)) {
				t.Errorf("%s, %s: %s %s %s", form, what, rec.State, rec.Disposition, rec.Result.Data)
			}
		}
	}
}

// TestNoTunnel: nobody asks the agent for another protocol, in which messages would pass
// unseen.
func TestNoTunnel(t *testing.T) {
	upgrades := make(chan string, 1)
	w := gateway(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { upgrades <- r.Header.Get("Upgrade") }), once.GatewayOptions{Operation: operation})
	c, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprint(c, "GET /rpc HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%v, %v", resp, err)
	}
	resp.Body.Close()
	if got := <-upgrades; got != "" {
		t.Errorf("the agent was asked for %s", got)
	}
}
