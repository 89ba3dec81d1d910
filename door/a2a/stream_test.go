package a2a_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	once "github.com/semelhq/semel/door/a2a"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/internal/jsonscan"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
)

// tape is an agent that streams the same events to every message. It stops before the last one but
// one until it is released.
type tape struct {
	runs    atomic.Int64
	release chan struct{}
	end     string // the state of its task in the end
	cut     bool   // it breaks off there
}

func newTape(end string) *tape { return &tape{release: make(chan struct{}), end: end} }

func (a *tape) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	raw, _ := io.ReadAll(r.Body)
	id := jsonscan.Member(raw, "id")
	if method, _ := jsonscan.Text(jsonscan.Member(raw, "method")); method == "GetTask" || r.Method == http.MethodGet {
		text := fmt.Sprintf(`{"id":"t-1","contextId":"c","status":{"state":%q}}`, a.end)
		if id != nil {
			text = fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, id, text)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, text)
		return
	}
	if method, _ := jsonscan.Text(jsonscan.Member(raw, "method")); method == "SubscribeToTask" {
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32004,"message":"no"}}`, id)
		return
	}
	a.runs.Add(1)
	w.Header().Set("Content-Type", "text/event-stream")
	events := []string{
		`{"task":{"id":"t-1","contextId":"c","status":{"state":"TASK_STATE_SUBMITTED"}}}`,
		`{"artifactUpdate":{"taskId":"t-1","contextId":"c","artifact":{"artifactId":"a","parts":[{"text":"one  two"}]}}}`,
		`{"statusUpdate":{"taskId":"t-1","contextId":"c","status":{"state":"` + a.end + `"}}}`,
	}
	for i, event := range events {
		if id != nil {
			event = fmt.Sprintf(`{"result": %s,"jsonrpc":"2.0","id":%s}`, event, id)
		}
		if i == 1 {
			<-a.release
			if a.cut {
				panic(http.ErrAbortHandler)
			}
		}
		fmt.Fprintf(w, "id: %d\ndata: %s\n\n", i+1, event)
		_ = http.NewResponseController(w).Flush()
	}
}

// stream sends a message whose answer is a stream, and waits for its first event.
func (w *world) stream(b binding, header ...string) (id string, resp *http.Response, in *bufio.Reader) {
	w.t.Helper()
	path, raw := b.body("m-1", "", "pay", true)
	r, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, w.url+path, strings.NewReader(raw))
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err = http.DefaultClient.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = resp.Body.Close() })
	in = bufio.NewReader(resp.Body)
	if _, err := in.Peek(4); err != nil {
		w.t.Fatal(err)
	}
	return string(jsonscan.Member([]byte(raw), "id")), resp, in
}

// recordedStream is what the call of such a stream keeps over REST; the stream is beside it. These
// bytes are read for good.
const recordedStream = `{"state":"completed","task":"t-1","final":true,"stream":"AdsBFVMK7ae3dsXZREOLHgAkWmvfI3hUVWbAj8iX+YnjGZg=","last":"id: 3\ndata: {\"statusUpdate\":{\"taskId\":\"t-1\",\"contextId\":\"c\",\"status\":{\"state\":\"TASK_STATE_COMPLETED\"}}}\n\n","answer":{"task":{"id":"t-1","contextId":"c","status":{"state":"TASK_STATE_COMPLETED"}}}}`

// A stream that is cut in the middle and asked for again is byte for byte one that wasn't cut, under
// the id of its own request, and the agent got the message once. So is one that is asked for after
// its end.
func TestStreamCutAndAskedAgain(t *testing.T) {
	clause.Proves(t, "MAP-A2A.1", "MAP-A2A.2")
	for _, b := range []binding{rpc, rest} {
		t.Run(b.name, func(t *testing.T) {
			agents := [2]*tape{newTape("TASK_STATE_COMPLETED"), newTape("TASK_STATE_COMPLETED")}
			read := func(id string, in io.Reader) string {
				text, err := io.ReadAll(in)
				if err != nil {
					t.Error(err)
				}
				return strings.ReplaceAll(string(text), `"id":`+id+`}`, `"id":X}`)
			}
			w := gateway(t, agents[0], once.GatewayOptions{Operation: operation})
			close(agents[0].release)
			id, _, in := w.stream(b)
			want := read(id, in)
			if strings.Count(want, "data: ") != 3 || b == rpc && strings.Count(want, `"id":X}`) != 3 {
				t.Fatal(want)
			}

			w = gateway(t, agents[1], once.GatewayOptions{Operation: operation})
			_, first, _ := w.stream(b)
			_ = first.Body.Close()
			id, resp, in := w.stream(b)
			close(agents[1].release)
			if got := read(id, in); got != want || resp.Header.Get(semelhttp.StreamHeader) != semelhttp.StreamLive {
				t.Errorf("joined: %v\n%s\ninstead of\n%s", resp.Header, got, want)
			}
			id, resp, in = w.stream(b)
			if got := read(id, in); got != want || resp.Header.Get(semelhttp.StreamHeader) != semelhttp.StreamFinished || resp.Header.Get("Idempotency-Replayed") != "true" {
				t.Errorf("afterwards: %v\n%s\ninstead of\n%s", resp.Header, got, want)
			}
			id, _, in = w.stream(b, "Last-Event-ID", "1")
			if got := read(id, in); !strings.HasPrefix(got, "id: 2\n") || !strings.HasSuffix(want, got) {
				t.Errorf("after the first event: %s", got)
			}
			if n := agents[1].runs.Load(); n != 1 {
				t.Errorf("%d runs", n)
			}
			page, err := w.Engine.Search(t.Context(), store.Query{Operation: operation.Name})
			if err != nil || len(page.Records) != 1 || b == rest && string(page.Records[0].Result.Data) != recordedStream {
				t.Errorf("%s, %v", page.Records[0].Result.Data, err)
			}
		})
	}
}

// Where a stream has ended and its task hasn't, or it broke off, the agent says how the task goes on:
// what was recorded isn't the outcome.
func TestStreamOfATaskThatGoesOn(t *testing.T) {
	clause.Proves(t, "MAP-A2A.1")
	for _, cut := range []bool{false, true} {
		a := newTape("TASK_STATE_INPUT_REQUIRED")
		a.cut = cut
		w := gateway(t, a, once.GatewayOptions{Operation: operation})
		_, _, first := w.stream(rpc)
		_, _, joined := w.stream(rpc)
		close(a.release)
		_, _ = io.ReadAll(first)
		live, err := io.ReadAll(joined)
		if err != nil || !bytes.Contains(live, []byte("SUBMITTED")) || !bytes.Contains(live, []byte("INPUT_REQUIRED")) {
			t.Errorf("broken %t, joined: %s, %v", cut, live, err)
		}
		_, resp, in := w.stream(rpc)
		now, err := io.ReadAll(in)
		if err != nil || bytes.Contains(now, []byte("SUBMITTED")) || !bytes.Contains(now, []byte("INPUT_REQUIRED")) || resp.Header.Get(semelhttp.StreamHeader) != "" || a.runs.Load() != 1 {
			t.Errorf("broken %t, afterwards: %v %s, %v", cut, resp.Header, now, err)
		}
	}
}

// Over the limit, and without a recording, duplicates get the task, as they did without streams.
func TestStreamOverTheLimit(t *testing.T) {
	for _, most := range []int64{100, -1} {
		a := newTape("TASK_STATE_COMPLETED")
		close(a.release)
		w := gateway(t, a, once.GatewayOptions{Operation: operation, MaxStream: most})
		_, _, in := w.stream(rpc)
		if first, err := io.ReadAll(in); err != nil || bytes.Count(first, []byte("data: ")) != 3 {
			t.Errorf("%s, %v", first, err)
		}
		_, _, in = w.stream(rpc)
		if again, err := io.ReadAll(in); err != nil || bytes.Count(again, []byte("data: ")) != 1 || !bytes.Contains(again, []byte("COMPLETED")) || a.runs.Load() != 1 {
			t.Errorf("%d: %s, %v", most, again, err)
		}
	}
}

// A sender who never reads its stream delays neither the agent nor others.
func TestStreamForOneThatNeverReads(t *testing.T) {
	agent := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		id := jsonscan.Member(raw, "id")
		w.Header().Set("Content-Type", "text/event-stream")
		for range 10_000 {
			fmt.Fprintf(w, `data: {"jsonrpc":"2.0","id":%s,"result":{"artifactUpdate":{"taskId":"t-1","artifact":{"parts":[{"text":%q}]}}}}`+"\n\n", id, strings.Repeat("x", 1000))
		}
		fmt.Fprintf(w, `data: {"jsonrpc":"2.0","id":%s,"result":{"statusUpdate":{"taskId":"t-1","status":{"state":"TASK_STATE_COMPLETED"}}}}`+"\n\n", id)
	})
	w := gateway(t, agent, once.GatewayOptions{Operation: operation, Timeout: 2 * time.Second, MaxStream: 32 << 20})
	path, raw := rpc.body("m-1", "", "pay", true)
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", path, len(raw), raw)
	if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.Contains(line, "200") {
		t.Fatalf("%q, %v", line, err)
	}
	_, resp, in := w.stream(rpc)
	text, err := io.ReadAll(in)
	if n := bytes.Count(text, []byte("artifactUpdate")); err != nil || n != 10_000 || !bytes.Contains(text, []byte("COMPLETED")) {
		t.Errorf("%v: %d events, %v", resp.Header, n, err)
	}
}
