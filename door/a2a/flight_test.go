package a2a_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2asrv"
	once "github.com/semelhq/semel/door/a2a"
	"github.com/semelhq/semel/internal/rig/clause"
)

// TestFive: a stock agent runs a message that comes five times at once five times, and an
// agent behind the door once; everybody gets the one task.
func TestFive(t *testing.T) {
	a := newAgent()
	stock := &world{t: t, agent: a, url: listen(t, a.serve(a2asrv.NewHandler(a)))}
	stock.five(rpc, "m-1", "pay", false)
	if n := a.runs.Load(); n != 5 {
		t.Errorf("the stock agent ran %d times, so there is nothing to guard", n)
	}
	for form, open := range forms {
		for _, stream := range []bool{false, true} {
			w := open(t)
			answers := w.five(rpc, "m-1", "pay", stream)
			for _, got := range answers {
				if got.task() != answers[0].task() || got.task() == "" || got.state() != "TASK_STATE_COMPLETED" {
					t.Errorf("%s: %s %s: %s", form, got.task(), got.state(), got.text)
				}
			}
			if n := w.runs.Load(); n != 1 {
				t.Errorf("%s: it ran %d times", form, n)
			}
		}
	}
}

// TestTaskInProgress: who asks again while the task is in progress waits for its end, gets its
// state, or follows it, as they want; the task goes on once.
func TestTaskInProgress(t *testing.T) {
	clause.Proves(t, "MAP-A2A.2")
	for form, open := range forms {
		for _, b := range all {
			t.Run(form+", "+b.name, func(t *testing.T) {
				w := open(t)
				first := make(chan *answer, 2)
				go func() { first <- w.send(b, "m-1", "", "slow", true) }()
				<-w.began
				waits := make(chan *answer, 1)
				go func() { waits <- w.send(b, "m-1", "", "slow", false) }()
				got := w.peek(b, "m-1", "slow")
				if got.task() == "" || plain(got.state()) != "working" && plain(got.state()) != "submitted" {
					t.Errorf("in progress: %s", got.text)
				}
				path, raw := b.body("m-1", "", "slow", true)
				r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+path, strings.NewReader(raw))
				r.Header.Set("Content-Type", "application/json")
				r.Header.Set("Accept", "text/event-stream")
				following, err := http.DefaultClient.Do(r) // returns with the first event
				if err != nil {
					t.Fatal(err)
				}
				defer following.Body.Close()
				select {
				case early := <-waits:
					t.Errorf("who wants the end of the task got %s", early.text)
				default:
				}
				close(w.release)
				if end := <-waits; end.task() != got.task() || plain(end.state()) != "completed" {
					t.Errorf("who waits got %s", end.text)
				}
				for _, end := range []*answer{<-first, read(t, following)} {
					if plain(end.state()) != "completed" && !strings.HasPrefix(b.path, "/oldrest") || end.task() != got.task() {
						t.Errorf("in the end: %s %s", end.task(), end.text)
					}
				}
				if n := w.runs.Load(); n != 1 {
					t.Errorf("it ran %d times", n)
				}
			})
		}
	}
}

// TestReturnImmediately: an agent that answers before it is done has told of a task, whose
// state it says to whoever asks again.
func TestReturnImmediately(t *testing.T) {
	clause.Proves(t, "MAP-A2A.1", "MAP-A2A.2")
	for form, open := range forms {
		t.Run(form, func(t *testing.T) {
			w := open(t)
			first := w.peek(rpc, "m-1", "slow")
			<-w.began
			again := w.peek(rpc, "m-1", "slow")
			for _, got := range []*answer{first, again} {
				if s := once.StateOf(got.state()); s != once.Pending && s != once.InProgress || got.task() != first.task() {
					t.Errorf("%s: %s", s, got.text)
				}
			}
			close(w.release)
			for deadline := time.Now().Add(10 * time.Second); again.state() != "TASK_STATE_COMPLETED"; again = w.peek(rpc, "m-1", "slow") {
				if time.Now().After(deadline) {
					t.Fatal(again.text)
				}
			}
			if n := w.runs.Load(); n != 1 || again.task() != first.task() {
				t.Errorf("it ran %d times: %s", n, again.text)
			}
		})
	}
}

// TestContinues: a message that names a task continues it, under an identity of its own, and
// starts no other, however often it comes.
func TestContinues(t *testing.T) {
	clause.Proves(t, "MAP-A2A.2")
	for form, open := range forms {
		for _, b := range all {
			t.Run(form+", "+b.name, func(t *testing.T) {
				w := open(t)
				first := w.send(b, "m-1", "", "ask", false)
				for range 2 {
					// The same messageId: with another task it is another message.
					next := w.send(b, "m-1", first.task(), "pay", false)
					if next.task() != first.task() || plain(next.state()) != "completed" {
						t.Errorf("%s became %s %s: %s", first.task(), next.task(), next.state(), next.text)
					}
				}
				now := w.send(b, "m-1", "", "ask", false)
				if now.task() != first.task() || plain(now.state()) != "completed" {
					t.Errorf("the first message got %s", now.text)
				}
				if n := w.runs.Load(); n != 2 {
					t.Errorf("the agent ran %d times", n)
				}
			})
		}
	}
}

// TestConflict: another content under a messageId isn't executed, and doesn't get the task.
func TestConflict(t *testing.T) {
	for form, open := range forms {
		for _, b := range all {
			w := open(t)
			first := w.send(b, "m-1", "", "pay", false)
			other := w.send(b, "m-1", "", "pay twice", false)
			if other.code != "conflict" || strings.Contains(other.text, first.task()) || w.runs.Load() != 1 {
				t.Errorf("%s, %s: %d runs, %s", form, b.name, w.runs.Load(), other.text)
			}
			for what, header := range map[string][]string{"another caller": {"X-Test-Caller", "bob"}, "a key of its own": {"Idempotency-Key", "k-1"}} {
				before := w.runs.Load()
				got := w.send(b, "m-1", "", "pay", false, header...)
				if got.task() == first.task() || got.code != "" || w.runs.Load() != before+1 {
					t.Errorf("%s, %s, %s: %s", form, b.name, what, got.text)
				}
			}
			// With a key, the messageId may change between two tries.
			before := w.runs.Load()
			got := w.send(b, "m-2", "", "pay", false, "Idempotency-Key", "k-1")
			if w.runs.Load() != before || plain(got.state()) != "completed" {
				t.Errorf("%s, %s: %s", form, b.name, got.text)
			}
		}
	}
}

// TestMessages: an agent that answers with a message and no task is asked once, too.
func TestMessages(t *testing.T) {
	for form, open := range forms {
		for _, b := range all {
			for _, stream := range []bool{false, true} {
				w := open(t)
				first, again := w.send(b, "m-1", "", "say", stream), w.send(b, "m-1", "", "say", stream)
				one, _ := json.Marshal(first.events)
				two, _ := json.Marshal(again.events)
				if string(one) != string(two) || !strings.Contains(string(one), "run 1") || w.runs.Load() != 1 {
					t.Errorf("%s, %s: %s\n%s", form, b.name, first.text, again.text)
				}
			}
		}
	}
}

// TestOthersPass: what reads, cancels or lists tasks passes, and starts no work.
func TestOthersPass(t *testing.T) {
	for form, open := range forms {
		w := open(t)
		task := w.send(rpc, "m-1", "", "ask", false).task()
		call := func(method, params string) *answer {
			return w.post("/rpc", `{"jsonrpc":"2.0","id":"x","method":"`+method+`","params":`+params+`}`)
		}
		cancelled := w.post("/rest/tasks/"+task+":cancel", `{}`)
		for deadline := time.Now().Add(10 * time.Second); cancelled.status != http.StatusOK && time.Now().Before(deadline); {
			cancelled = w.post("/rest/tasks/"+task+":cancel", `{}`) // the SDK refuses while an execution is about to end
		}
		for _, got := range []*answer{call("ListTasks", `{}`), cancelled, call("GetTask", `{"id":"`+task+`"}`)} {
			if got.status != http.StatusOK || !strings.Contains(got.text, task) || got.header.Get("Idempotency-Replayed") != "" {
				t.Errorf("%s: %d %s", form, got.status, got.text)
			}
		}
		if got := w.send(rpc, "m-1", "", "ask", false); got.state() != "TASK_STATE_CANCELED" || w.runs.Load() != 1 {
			t.Errorf("%s: after the cancellation, %d runs: %s", form, w.runs.Load(), got.text)
		}
	}
}
