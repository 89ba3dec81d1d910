package a2a_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// fault is what is wrong with an agent.
type fault string

// agent is a small agent that does what the sentences say, in version 1.0, but for a fault.
type agent struct {
	fault
	provider string // the URL of the outside system

	mu    sync.Mutex
	group string // that is being judged
	begun bool   // a message of it has come
	// The first of those at once is held until a second has looked.
	held   string
	second chan struct{}
	n      int
	tasks  map[string]*task // by what a message is known by
}

// task is what a message has led to. It is there once done is closed.
type task struct {
	id, text string
	done     chan struct{}
	leaves   bool // the first sender does
	gone     bool // it did, and the agent has forgotten the task
}

// began says which group is judged.
func (a *agent) began(group string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.group, a.begun = group, false
}

// newAgent serves an agent.
func newAgent(t *testing.T, is fault, provider string) (a *agent, url string) {
	a = &agent{fault: is, provider: provider, tasks: map[string]*task{}}
	srv := httptest.NewServer(a)
	t.Cleanup(srv.Close)
	return a, srv.URL
}

// request has what the agent reads.
type request struct {
	ID, Method string
	Params     struct {
		ID      string
		Message struct {
			MessageID, TaskID string
			Parts             []struct{ Text string }
		}
	}
}

func (a *agent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var in request
	body, err := io.ReadAll(r.Body)
	if err != nil || json.Unmarshal(body, &in) != nil {
		return // the request broke off
	}
	say := func(text string, args ...any) {
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%q,%s}`, in.ID, fmt.Sprintf(text, args...))
	}
	m := in.Params.Message
	stream := in.Method == "SendStreamingMessage"
	switch {
	case r.Header.Get("A2A-Version") != "1.0" || a.fault == "speaks something else":
		say(`"error":{"code":-32009,"message":"another version, please"}`)
		return
	case in.Method == "GetTask":
		if a.fault == "hides tasks" {
			in.Params.ID = ""
		}
		say(`"result":{"id":%q,"status":{"state":"TASK_STATE_COMPLETED"}}`, in.Params.ID)
		return
	case m.TaskID != "" && a.fault != "starts another task":
		say(`"error":{"code":-32004,"message":"the task has ended"}`)
		return
	case stream && a.fault == "doesn't stream":
		say(`"error":{"code":-32004,"message":"there are no streams"}`)
		return
	}
	got := a.take(r, in, stream)
	a.mu.Lock()
	id, leaves := "", false
	if got != nil {
		id, leaves, got.leaves = got.id, got.leaves, false
	}
	a.mu.Unlock()
	switch {
	case got == nil:
		say(`"error":{"code":-32602,"message":"the messageId is used"}`)
	case a.fault == "says messages":
		say(`"result":{"message":{"messageId":%q,"role":"ROLE_AGENT"}}`, id)
	case stream:
		w.Header().Set("Content-Type", "text/event-stream")
		for _, event := range []string{`{"task":{"id":%q}}`, `{"statusUpdate":{"taskId":%q}}`} {
			_, _ = io.WriteString(w, "data: ")
			say(`"result":`+event, id)
			_, _ = io.WriteString(w, "\n\n")
			if leaves && a.fault == "renames the tasks of those who leave" {
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
				a.mu.Lock()
				got.id += "-again"
				a.mu.Unlock()
			}
		}
	default:
		say(`"result":{"task":{"id":%q}}`, id)
	}
}

// take runs a message unless it has run, and returns its task; nil refuses it.
func (a *agent) take(r *http.Request, in request, stream bool) *task {
	m := in.Params.Message
	text, key := m.Parts[0].Text, m.MessageID
	switch {
	case a.fault == "knows nothing":
		key = in.ID + time.Now().String()
	case a.fault == "goes by the text":
		key = text
	case a.fault == "goes by JSON-RPC's id":
		key = in.ID
	case a.fault == "compares contents":
		key += text
	case a.fault == "tells streams apart":
		key = fmt.Sprint(key, stream)
	}
	a.mu.Lock()
	a.n++
	known := a.tasks[key]
	fresh := known == nil
	if fresh {
		known = &task{id: fmt.Sprint("task-", a.n), text: text, done: make(chan struct{})}
		// In the group gone these are the first message, and the first delivery of a stream.
		known.leaves = a.group == "gone" && (stream || !a.begun)
	}
	var second chan struct{}
	switch {
	case a.group == "concurrent" && !a.begun:
		second = make(chan struct{})
		a.held, a.second = key, second
	case a.held == key && a.second != nil:
		close(a.second)
		a.second = nil
	}
	a.begun = true
	first := known.text == text
	if a.fault == "lets nobody have it then" && !first {
		known.text = "nobody's"
	}
	switch {
	case !first && a.fault == "gives up a messageId with two texts":
		delete(a.tasks, key)
	case a.fault != "looks and then acts" || a.group != "concurrent":
		a.tasks[key] = known
	}
	a.mu.Unlock()
	if !fresh && !first && a.fault != "answers another text" {
		return nil
	}
	if !fresh {
		if <-known.done; known.gone {
			return a.take(r, in, stream)
		}
		return known
	}
	if second != nil {
		<-second
	}
	a.work(text)
	if a.fault == "works twice" {
		a.work(text)
	}
	close(known.done)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.fault == "looks and then acts" {
		a.tasks[key] = known
	}
	return known
}

func (a *agent) work(text string) {
	if a.fault == "tells nobody" {
		return
	}
	if resp, err := http.Post(a.provider, "text/plain", strings.NewReader(text)); err == nil {
		_ = resp.Body.Close()
	}
}
