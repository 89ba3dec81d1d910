package a2a_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel"
	once "github.com/semelhq/semel/door/a2a"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
)

// TestHangUp: a caller who hangs up stops neither the agent nor the recording.
func TestHangUp(t *testing.T) {
	for form, open := range forms {
		for _, stream := range []bool{false, true} {
			w := open(t)
			ctx, cancel := context.WithCancel(t.Context())
			path, raw := rpc.body("m-1", "", "slow", stream)
			r, _ := http.NewRequestWithContext(ctx, http.MethodPost, w.url+path, strings.NewReader(raw))
			r.Header.Set("Content-Type", "application/json")
			gone := make(chan struct{})
			go func() {
				defer close(gone)
				if resp, err := http.DefaultClient.Do(r); err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
			}()
			<-w.began
			cancel()
			<-gone
			close(w.release)
			got := w.send(rpc, "m-1", "", "slow", false)
			for deadline := time.Now().Add(10 * time.Second); got.state() != "TASK_STATE_COMPLETED" && time.Now().Before(deadline); {
				got = w.send(rpc, "m-1", "", "slow", false)
			}
			if n := w.runs.Load(); n != 1 || got.state() != "TASK_STATE_COMPLETED" {
				t.Errorf("%s, stream %t: %d runs, %s", form, stream, n, got.text)
			}
		}
	}
}

// TestSettled: whoever settles a held message gives the task as its result, or nothing that a
// duplicate could get.
func TestSettled(t *testing.T) {
	for _, c := range []struct{ result, code, task string }{
		{done, "", "T1"},
		{`{"kind":"task","id":"T2","status":{"state":"completed"}}`, "", "T2"},
		{"", "result_not_kept", ""},
		{`"it was done"`, "result_not_kept", ""},
	} {
		w, sent := scripted(t, once.GatewayOptions{}, func(w http.ResponseWriter, _ string) { w.WriteHeader(http.StatusBadGateway) })
		if w.send(rpc, "m-1", "", "pay", false); w.send(rpc, "m-1", "", "pay", false).code != "held" {
			t.Fatal("it isn't held")
		}
		page, err := w.Engine.Search(t.Context(), store.Query{Operation: operation.Name})
		if err != nil || len(page.Records) != 1 {
			t.Fatal(err)
		}
		settlement := semel.Settlement{Outcome: semel.DispositionCompleted, Who: "alice"}
		if c.result != "" {
			settlement.Result = semel.Result{Data: []byte(c.result)}
		}
		if _, err := w.Engine.Settle(t.Context(), page.Records[0].ID, settlement, "looked"); err != nil {
			t.Fatal(err)
		}
		if got := w.send(rpc, "m-1", "", "pay", false); got.code != c.code || got.task() != c.task || sent.Load() != 1 {
			t.Errorf("settled with %s: %s", c.result, got.text)
		}
	}
}

// TestLostLease: if the program that has sent a message is gone, its task is known: another
// attempt asks for it and sends nothing, and who asks about a held one gets its state.
func TestLostLease(t *testing.T) {
	clause.Proves(t, "MAP-A2A.2")
	for name, effects := range map[string][]string{"runs again": {}, "held": nil} {
		t.Run(name, func(t *testing.T) {
			op := operation
			op.Effects, op.Lease = effects, time.Hour // nobody renews it in this test
			w := behind(t, once.GatewayOptions{Operation: op})
			first := make(chan *answer, 1)
			go func() { first <- w.send(rpc, "m-1", "", "slow", true) }()
			<-w.began
			known := w.peek(rpc, "m-1", "slow").task()
			w.Store.Advance(2 * time.Hour)
			got := w.peek(rpc, "m-1", "slow")
			page, err := w.Engine.Search(t.Context(), store.Query{Operation: operation.Name})
			if err != nil || len(page.Records) != 1 {
				t.Fatal(err)
			}
			rec := page.Records[0]
			if held := rec.Held; got.task() != known || !running(got) || held != (name == "held") || rec.Attempt != map[bool]int{true: 1, false: 2}[held] {
				t.Errorf("after the lease, attempt %d, held %t: %s", rec.Attempt, held, got.text)
			}
			close(w.release)
			<-first
			last := w.send(rpc, "m-1", "", "slow", false)
			if last.task() != known || last.state() != "TASK_STATE_COMPLETED" || w.runs.Load() != 1 {
				t.Errorf("in the end, %d runs: %s", w.runs.Load(), last.text)
			}
		})
	}
}

// TestStreamThatBroke: who sends a message again whose stream broke off, and wants no stream,
// gets the end of its task, like the sender of any message; or how far it is when the time of
// a duplicate is over.
func TestStreamThatBroke(t *testing.T) {
	for _, c := range []struct {
		wait  time.Duration
		state string
		asked int64
	}{{time.Minute, "TASK_STATE_COMPLETED", 3}, {time.Millisecond, "TASK_STATE_WORKING", 1}} {
		var sent, asked atomic.Int64
		w := gateway(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				sent.Add(1)
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, "data: "+strings.Replace(done, "COMPLETED", "WORKING", 1)+"\n\n")
				_ = http.NewResponseController(w).Flush()
				panic(http.ErrAbortHandler)
			}
			task := strings.TrimSuffix(strings.TrimPrefix(done, `{"task":`), "}")
			if asked.Add(1) < 4 { // the first asks for the record
				task = strings.Replace(task, "COMPLETED", "WORKING", 1)
			}
			_, _ = io.WriteString(w, task)
		}), once.GatewayOptions{Operation: operation, Wait: c.wait})
		w.send(rest, "m-1", "", "pay", true)
		before := asked.Load()
		got := w.send(rest, "m-1", "", "pay", false)
		if got.state() != c.state || got.task() != "T1" || got.header.Get("Idempotency-Replayed") != "true" || sent.Load() != 1 || asked.Load()-before != c.asked {
			t.Errorf("waiting %v: asked %d times, %d %s", c.wait, asked.Load()-before, got.status, got.text)
		}
	}
}

// running reports whether an answer shows a task at work. The SDK stores a state some time
// after the agent has told it, so it may be the one before.
func running(got *answer) bool {
	return got.state() == "TASK_STATE_WORKING" || got.state() == "TASK_STATE_SUBMITTED"
}

// TestLargeTasks: a task that is too large to be kept is the agent's to tell.
func TestLargeTasks(t *testing.T) {
	op := operation
	op.MaxResult = 256
	for form, w := range map[string]*world{
		"wrapped": wrapped(t, once.Options{Operation: op}), "gateway": behind(t, once.GatewayOptions{Operation: op}),
	} {
		for _, stream := range []bool{false, true} {
			id := "m-" + strings.Repeat("x", len(form)) + map[bool]string{true: "s"}[stream]
			first, again := w.send(rpc, id, "", "pay", stream), w.send(rpc, id, "", "pay", stream)
			if first.task() != again.task() || again.state() != "TASK_STATE_COMPLETED" {
				t.Errorf("%s: %s\n%s", form, first.text, again.text)
			}
		}
		if n := w.runs.Load(); n != 2 {
			t.Errorf("%s: %d runs", form, n)
		}
	}
}

// TestSentAgain: an operation may say by name that a message of which nobody knows the
// outcome is sent again; but not one whose task is known.
func TestSentAgain(t *testing.T) {
	op := operation
	op.OnAbandoned = semel.RetryAbandoned
	for _, c := range []struct {
		stream bool
		sent   int64
	}{{false, 2}, {true, 1}} {
		w, sent := scriptedBy(t, once.GatewayOptions{Operation: op}, func(w http.ResponseWriter, id string) {
			if !c.stream {
				w.WriteHeader(http.StatusGatewayTimeout)
				return
			}
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":%s}\n\n", id, strings.Replace(done, "COMPLETED", "WORKING", 1))
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		})
		w.send(rpc, "m-1", "", "pay", c.stream)
		w.send(rpc, "m-1", "", "pay", c.stream)
		if n := sent.Load(); n != c.sent {
			t.Errorf("stream %t: it was sent %d times", c.stream, n)
		}
	}
}

// TestTheClaimSaysWhetherThereIsALedger: if a reload has declared one since the gateway was made,
// the claim has promised it, and a message that nobody answered isn't sent again.
func TestTheClaimSaysWhetherThereIsALedger(t *testing.T) {
	op := operation
	op.OnAbandoned = semel.RetryAbandoned
	w, sent := scriptedBy(t, once.GatewayOptions{Operation: op}, func(w http.ResponseWriter, _ string) { w.WriteHeader(http.StatusGatewayTimeout) })
	op.OnAbandoned, op.Effects = semel.HoldAbandoned, []string{once.TaskEffect}
	if err := w.Engine.Register(op); err != nil {
		t.Fatal(err)
	}
	w.send(rpc, "m-1", "", "pay", false)
	if got := w.send(rpc, "m-1", "", "pay", false); got.code != "held" || sent.Load() != 1 {
		t.Errorf("it was sent %d times: %s", sent.Load(), got.text)
	}
}
