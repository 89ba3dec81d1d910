//go:build linux

package chaos

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/semelhq/semel/internal/rig/history"
)

// fakeLease is short, so that calls whose holder never learned of it are held soon.
const fakeLease = 300 * time.Millisecond

// fakeNode answers like a node, from memory. It has the bug that is planted in it.
type fakeNode struct {
	bug      string
	upstream http.Handler

	mu    sync.Mutex
	calls map[string]*fakeCall
	fence int64
	n     int // counts what a bug may hit
}

// fakeCall is the record of a call.
type fakeCall struct {
	state   string // running, held, open or ended
	until   time.Time
	payload string
	holder  string
	fence   int64
	record  map[string]any // how it ended
	reply   *fakeReply
	caller  string                // the credential that a call through the proxy was answered for
	refused map[string]*fakeReply // by the credential
	steps   map[string]any
}

// hits is true for every third chance of a bug.
func (f *fakeNode) hits(bug string) bool {
	if f.bug != bug {
		return false
	}
	f.n++
	return f.n%3 == 0
}

func (f *fakeNode) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	path := strings.Split(strings.TrimPrefix(r.URL.Path, "/"), "/")
	switch {
	case len(path) == 1:
		f.route(w, r, path[0], body)
	case path[1] == "operations":
		f.begin(w, r, path[2], body)
	case path[1] == "executions":
		f.act(w, path[2], strings.Join(path[3:], "/"), body)
	default: // why a call is held
		tell(w, 200, map[string]any{"record": map[string]any{"held": true, "held_reason": "the holder gave up"}})
	}
}

// leap sets the clock that the node goes by. If it believes that, what has ended has expired.
func (f *fakeNode) leap(by time.Duration) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.bug == "believes its clock" && by > farLeap {
		maps.DeleteFunc(f.calls, func(_ string, c *fakeCall) bool { return c.state == "ended" })
	}
	return nil
}

func tell(w http.ResponseWriter, status int, body map[string]any) {
	w.Header().Set("Content-Type", "application/json")
	if code, ok := body["code"]; ok {
		w.Header().Set("Content-Type", "application/problem+json")
		w.Header().Set("Location", "/v1/records/x")
		w.Header().Set("Link", `</v1/records/x>; rel="status"`)
		body["detail"], body["record"] = fmt.Sprint("it is ", code), "urn:a-record" // as those of the API
	}
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

func problem(w http.ResponseWriter, status int, code string) {
	tell(w, status, map[string]any{"code": code})
}

// find is the call of a key, new or not. The caller holds f.mu.
func (f *fakeNode) find(op, key string) *fakeCall {
	name := op + "/" + key
	if f.calls[name] == nil {
		f.calls[name] = &fakeCall{state: "open", steps: map[string]any{}, refused: map[string]*fakeReply{}}
	}
	c := f.calls[name]
	if c.state == "running" && time.Now().After(c.until) && f.bug != "calls stay in flight" {
		c.state = "held"
	}
	return c
}

// order refuses a number of a sequence without gaps that may not begin now.
func (f *fakeNode) order(w http.ResponseWriter, op, key string, number int) (refused bool) {
	ended := func(n int) bool { return f.find(op, history.NumberKey(key, n)).state == "ended" }
	next := 1
	for ended(next) {
		next++
	}
	if number < next {
		if f.hits("earlier numbers are forgotten") && number < next-1 {
			tell(w, 409, map[string]any{"code": history.Superseded, "last_sequence": next - 1})
			return true
		}
		return false
	}
	for n := 1; n < 10; n++ {
		state := f.find(op, history.NumberKey(key, n)).state
		if code := map[string]string{"running": history.InFlight, "held": history.Held}[state]; n != number && code != "" && f.bug != "numbers meet" {
			problem(w, 409, code)
			return true
		}
	}
	if number > next && f.bug != "numbers have gaps" && f.bug != "numbers meet" {
		tell(w, 409, map[string]any{"code": history.Gap, "expected_sequence": next})
		return true
	}
	return false
}

func (f *fakeNode) begin(w http.ResponseWriter, r *http.Request, op string, body []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := r.Header.Get("Idempotency-Key")
	var in struct{ Sequence int }
	if _ = json.Unmarshal(body, &in); in.Sequence > 0 { // others have none
		if f.order(w, op, key, in.Sequence) {
			return
		}
		key = history.NumberKey(key, in.Sequence)
	}
	c := f.find(op, key)
	holder := r.Header.Get("Semel-Holder")
	first := c.payload == ""
	again := c.state == "running" && holder != "" && c.holder == holder
	switch {
	case !first && c.payload != string(body):
		problem(w, 422, history.Conflict)
	case again:
	case c.state == "running" && f.hits("grants twice"):
		c.state = "open"
	case c.state == "running":
		problem(w, 409, history.InFlight)
	case c.state == "held":
		problem(w, 409, history.Held)
	case c.state == "ended":
		f.replay(w, c)
	}
	if c.state != "open" && !again || !first && c.payload != string(body) {
		return
	}
	if !again {
		f.fence++
		c.fence = f.fence
		if f.hits("fences fall") {
			c.fence = 1
		}
	}
	c.state, c.payload, c.holder, c.until = "running", string(body), holder, time.Now().Add(fakeLease)
	tell(w, 201, map[string]any{
		"decision": "execute", "execution": op + "~" + key + "." + strconv.FormatInt(c.fence, 10), "fence": c.fence, "lease_ms": fakeLease.Milliseconds(),
		"record": map[string]any{"status": "processing"},
	})
}

func (f *fakeNode) replay(w http.ResponseWriter, c *fakeCall) {
	if f.hits("forgets") {
		problem(w, 409, history.InFlight)
		return
	}
	record := map[string]any{}
	maps.Copy(record, c.record)
	if f.hits("answers change") {
		record["result"] = json.RawMessage(`"something else"`)
	}
	tell(w, 200, map[string]any{"decision": "replay", "record": record})
}

// act is a request about an execution.
func (f *fakeNode) act(w http.ResponseWriter, execution, verb string, body []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	dot := strings.LastIndexByte(execution, '.')
	op, key, _ := strings.Cut(execution[:dot], "~")
	c := f.find(op, key)
	fence, _ := strconv.ParseInt(execution[dot+1:], 10, 64)
	var in map[string]json.RawMessage
	_ = json.Unmarshal(body, &in) // some have no body
	end := map[string]string{"complete": "completed", "reject": "rejected", "fail": "failed", "abort": "aborted"}[verb]
	switch {
	case c.fence != fence:
		problem(w, 409, history.Lost)
	case c.state == "ended" && c.record["disposition"] != end, c.state == "open" && verb != "abort":
		problem(w, 409, history.Ended)
	case c.state == "held" && verb == "effects":
		problem(w, 409, history.Lost)
	case verb == "effects" && c.steps[string(in["name"])] == nil:
		c.steps[string(in["name"])] = true
		tell(w, 201, map[string]any{"state": "started"})
	case verb == "effects" && string(in["not_called"]) == "true":
		tell(w, 201, map[string]any{"state": "started"})
	case verb == "effects":
		problem(w, 409, "effect_unknown")
	case verb == "hold":
		c.state = "held"
		tell(w, 200, map[string]any{"record": map[string]any{"status": "processing"}})
	case c.state == "held" && verb == "renew":
		problem(w, 409, history.Lost)
	case verb == "renew", verb == "effects/settle":
		c.until = time.Now().Add(fakeLease)
		tell(w, 200, map[string]any{})
	case verb == "abort":
		c.state = "open"
		tell(w, 200, map[string]any{"record": map[string]any{"status": "failed", "disposition": end}})
	default:
		c.record = map[string]any{"status": map[bool]string{true: "completed", false: "failed"}[verb == "complete"], "disposition": end}
		for _, part := range []string{"result", "error"} {
			if in[part] != nil {
				c.record[part] = in[part]
			}
		}
		c.state = "ended"
		if f.hits("completions get lost") {
			c.state = "held"
		}
		if f.hits("calls stay in flight") {
			c.state = "running"
		}
		tell(w, 200, map[string]any{"record": c.record})
	}
}

// route is a call through the proxy.
func (f *fakeNode) route(w http.ResponseWriter, r *http.Request, op string, body []byte) {
	f.mu.Lock()
	c := f.find(op, r.Header.Get("Idempotency-Key"))
	caller := r.Header.Get("Authorization")
	if refused := c.refused[caller]; refused != nil {
		w.Header().Set("Idempotency-Replayed", "true")
		refused.send(w)
		f.mu.Unlock()
		return
	}
	first := c.payload == ""
	switch {
	case !first && c.payload != string(body):
		problem(w, 422, history.Conflict)
	case c.state == "running":
		problem(w, 409, history.InFlight)
	case c.state == "ended" && c.caller != caller && f.bug != "strangers are answered":
		problem(w, 409, history.OtherCaller)
	case c.state == "held":
		problem(w, 409, history.Held)
	case c.state == "ended":
		w.Header().Set("Idempotency-Replayed", "true")
		c.reply.send(w)
	}
	if c.state != "open" || !first && c.payload != string(body) {
		f.mu.Unlock()
		return
	}
	c.state, c.payload, c.until = "running", string(body), time.Now().Add(time.Hour) // renewed by the node
	twice := f.hits("sends twice")
	f.mu.Unlock()
	reply := f.ask(r, body)
	if twice {
		reply = f.ask(r, body)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	c.state, c.reply, c.caller = "open", nil, caller
	refused := caller != "" && reply.Code/100 == 4
	switch {
	case refused && f.bug == "strangers keep keys":
		c.state, c.reply = "ended", &fakeReply{reply}
	case refused:
		c.payload = ""
		if reply.Code == http.StatusUnprocessableEntity && f.bug != "refusals get lost" {
			c.refused[caller] = &fakeReply{reply}
		}
	case reply.Code < 500:
		c.state, c.reply = "ended", &fakeReply{reply}
	}
	(&fakeReply{reply}).send(w)
}

// fakeReply is an answer that can be sent several times.
type fakeReply struct{ *httptest.ResponseRecorder }

func (f *fakeNode) ask(r *http.Request, body []byte) *httptest.ResponseRecorder {
	again := r.Clone(r.Context())
	again.Body = io.NopCloser(strings.NewReader(string(body)))
	w := httptest.NewRecorder()
	f.upstream.ServeHTTP(w, again)
	return w
}

func (f *fakeReply) send(w http.ResponseWriter) {
	maps.Copy(w.Header(), f.Header())
	w.WriteHeader(f.Code)
	_, _ = w.Write(f.Body.Bytes())
}
