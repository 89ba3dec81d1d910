package a2a_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv"

	once "github.com/semelhq/semel/door/a2a"
	"github.com/semelhq/semel/door/semelhttp/semelhttptest"
	"github.com/semelhq/semel/internal/jsonscan"
)

// busy is an agent that goes on in its stream after the task has ended.
func busy(t *testing.T, runs *int, more string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		if jsonscan.Member(raw, "message") == nil && jsonscan.At(raw, "params", "message") == nil {
			w.WriteHeader(http.StatusNotFound) // there is no more about the task
			return
		}
		*runs++
		w.Header().Set("Content-Type", "text/event-stream")
		say := func(event string) error {
			if id := jsonscan.Member(raw, "id"); id != nil {
				event = fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, id, event)
			}
			_, err := fmt.Fprintf(w, "data: %s\n\n", event)
			_ = http.NewResponseController(w).Flush()
			return err
		}
		_ = say(`{"task":{"id":"t-1","contextId":"c","status":{"state":"TASK_STATE_COMPLETED"}}}`)
		for range 500 { // more than a connection holds
			if say(fmt.Sprintf(more, strings.Repeat("x", 64<<10))) != nil || r.Context().Err() != nil {
				return
			}
		}
		t.Error("the gateway has read all that came behind the end")
	})
}

// An agent that doesn't end its stream with its task is left, and its caller gets the end.
func TestAnAgentThatGoesOnAfterTheEnd(t *testing.T) {
	for what, more := range map[string]string{
		"updates": `{"artifactUpdate":{"taskId":"t-1","artifact":{"parts":[{"text":%q}]}}}`,
		"ends":    `{"statusUpdate":{"taskId":"t-1","status":{"state":"TASK_STATE_FAILED"},"metadata":{"x":%q}}}`,
		"noise":   `{"x":%q}`,
	} {
		for _, b := range []binding{rpc, rest} {
			runs := 0
			w := gateway(t, busy(t, &runs, more), once.GatewayOptions{Operation: operation})
			for range 2 { // the second gets what was recorded
				if got := w.send(b, "m-1", "", "pay", true); len(got.events) != 1 || got.state() != "TASK_STATE_COMPLETED" || got.code != "" {
					t.Errorf("%s, %s: %d events, %s", what, b.name, len(got.events), got.code)
				}
			}
			if runs != 1 {
				t.Errorf("%s, %s: %d runs", what, b.name, runs)
			}
		}
	}
}

// chatty is such an agent in this process.
type chatty struct {
	a2asrv.RequestHandler
	left *atomic.Bool
}

func (h chatty) SendStreamingMessage(ctx context.Context, req *a2a.SendMessageRequest) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		for e, err := range h.RequestHandler.SendStreamingMessage(ctx, req) {
			if !yield(e, err) {
				h.left.Store(true)
				return
			}
		}
		for range 100 {
			yield(a2a.NewStatusUpdateEvent(&a2a.Task{ID: "t-2", ContextID: "c"}, a2a.TaskStateCompleted, nil), nil)
		}
	}
}

// So is one in this process.
func TestAnAgentInsideThatGoesOnAfterTheEnd(t *testing.T) {
	a := newAgent()
	h := chatty{a2asrv.NewHandler(a, a2asrv.WithCallInterceptors(signedIn{})), new(atomic.Bool)}
	w := &world{t: t, agent: a, Service: semelhttptest.New(t, nil)}
	handler, err := once.Wrap(w.Engine, h, once.Options{Operation: operation, Wait: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	w.url = listen(t, a.serve(handler))
	if got := w.send(rpc, "m-1", "", "pay", true); len(got.events) != 4 || got.state() != "TASK_STATE_COMPLETED" || got.task() == "t-2" {
		t.Errorf("%s", got.text)
	}
	if !h.left.Load() {
		t.Error("the agent was heard to its end")
	}
}

// What a paused task waits for may come another way, and the task go on in the same stream: its
// caller gets all of it, and nothing late.
func TestAStreamThatGoesOnAfterAPause(t *testing.T) {
	release := make(chan struct{})
	agent := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		for _, state := range []string{"AUTH_REQUIRED", "WORKING", "COMPLETED"} {
			fmt.Fprintf(w, `data: {"jsonrpc":"2.0","id":%s,"result":{"statusUpdate":{"taskId":"t-1","status":{"state":"TASK_STATE_%s"}}}}`+"\n\n", jsonscan.Member(raw, "id"), state)
			_ = http.NewResponseController(w).Flush()
			if state == "WORKING" {
				<-release
			}
		}
	})
	w := gateway(t, agent, once.GatewayOptions{Operation: operation})
	_, _, in := w.stream(rpc)
	for _, state := range []string{"AUTH_REQUIRED", "WORKING", "COMPLETED"} {
		if state == "COMPLETED" {
			close(release)
		}
		if line, err := nextData(in); err != nil || !strings.Contains(line, state) {
			t.Fatalf("%q instead of %s, %v", line, state, err)
		}
	}
	if rest, err := io.ReadAll(in); err != nil || strings.TrimSpace(string(rest)) != "" {
		t.Errorf("%q, %v", rest, err)
	}
}

// An agent may leave the stream of a paused task open. When it has been silent for long enough, the
// pause is the answer.
func TestAStreamThatStaysOpenAfterAPause(t *testing.T) {
	agent := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		if jsonscan.At(raw, "params", "message") == nil {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, `data: {"jsonrpc":"2.0","id":%s,"result":{"task":{"id":"t-1","status":{"state":"TASK_STATE_INPUT_REQUIRED"}}}}`+"\n\n", jsonscan.Member(raw, "id"))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	w := gateway(t, agent, once.GatewayOptions{Operation: operation, Timeout: 50 * time.Millisecond})
	if got := w.send(rpc, "m-1", "", "pay", true); len(got.events) != 1 || got.state() != "TASK_STATE_INPUT_REQUIRED" || got.code != "" {
		t.Errorf("%s", got.text)
	}
}

// nextData is the next line of data in a stream.
func nextData(in *bufio.Reader) (line string, err error) {
	for err == nil && !strings.HasPrefix(line, "data:") {
		line, err = in.ReadString('\n')
	}
	return line, err
}
