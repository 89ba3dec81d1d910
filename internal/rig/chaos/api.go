//go:build linux

package chaos

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/semelhq/semel/internal/rig/history"
)

// client uses the API as its documents describe it, and logs requests and answers. It uses no
// code of the product.
type client struct {
	name  string   // begins the ids of its requests
	nodes []string // addresses
	note  func(history.Event)
	wire  *wire
	ids   *atomic.Int64
}

// answer is the answer to a request, as far as a client acts on it.
type answer struct {
	word      string
	status    int
	execution string
	fence     int64
	lease     time.Duration
	after     time.Duration // when to ask again
	outcome   string
	link      string // address of the call's status
	effect    effect
}

// effect is an effect in the ledger.
type effect struct {
	State  string          `json:"state"`
	Result json.RawMessage `json:"result"`
}

// view is the part of a record that says how its call ended.
type view struct {
	Status      string          `json:"status"`
	Disposition string          `json:"disposition"`
	HeldReason  string          `json:"held_reason"`
	Result      json.RawMessage `json:"result"`
	ResultBytes *string         `json:"result_base64"`
	ResultKept  *bool           `json:"result_kept"`
	Error       *refusal        `json:"error"`
}

// refusal is the error of a record.
type refusal struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// outcome is how the call ended, with every byte of its result.
func (v *view) outcome() string {
	text := v.Disposition + " " + string(v.Result)
	if v.ResultBytes != nil {
		text += " base64 " + *v.ResultBytes
	}
	if v.ResultKept != nil && !*v.ResultKept {
		text += " not kept"
	}
	if v.Error != nil {
		text += v.Error.Code + ": " + v.Error.Message
	}
	return text
}

// apiReply is any answer of the execution API: a beginning, an effect, a record or a problem.
type apiReply struct {
	Execution string          `json:"execution"`
	Fence     int64           `json:"fence"`
	Lease     int64           `json:"lease_ms"`
	Code      string          `json:"code"`
	Detail    string          `json:"detail"`
	Record    json.RawMessage `json:"record"` // of a problem its name
	named
	effect
}

// named is the number that the refusal of another one names.
type named struct {
	Last     int `json:"last_sequence"`
	Expected int `json:"expected_sequence"`
}

// slack is how much longer a client waits than it asks the server to wait.
const slack = 6 * time.Second

// send sends one request and logs request and answer. hangup is when the client gives
// up, if that is before slack.
func (c *client) send(e history.Event, r *http.Request, body any, hangup time.Duration) (*reply, history.Event) {
	var data []byte
	if body != nil {
		var err error
		if data, err = json.Marshal(body); err != nil {
			panic(err) // it is made of strings and numbers
		}
		r.Header.Set("Content-Type", "application/json")
	}
	e.Kind, e.At = history.Request, now()
	if e.ID == "" {
		e.ID = c.id()
	}
	c.note(e)
	limit := slack + time.Duration(e.Wait)*time.Second
	if hangup > 0 {
		limit = hangup
	}
	rep, err := c.wire.send(c.nodes[e.Node-1], r, data, limit)
	a := history.Event{At: now(), Kind: history.Answer, Key: e.Key, ID: e.ID, Verb: e.Verb, Node: e.Node, Payload: e.Payload, Caller: e.Caller, Final: e.Final}
	if err != nil {
		a.Word, a.Text = history.None, short(err)
		return nil, a
	}
	a.Status = rep.status
	return rep, a
}

// id is a new one for a request.
func (c *client) id() string { return fmt.Sprintf("%s-%d", c.name, c.ids.Add(1)) }

// short is the text of an error without parts that differ between machines.
func short(err error) string {
	text := err.Error()
	if i := strings.LastIndex(text, ": "); i >= 0 {
		text = text[i+2:]
	}
	return text
}

// ask sends a request to the execution API and parses the answer.
func (c *client) ask(e history.Event, path string, header http.Header, body any) answer {
	r, err := http.NewRequest(http.MethodPost, "http://localhost"+path, nil)
	if err != nil {
		panic(err) // paths are escaped
	}
	maps.Copy(r.Header, header)
	rep, a := c.send(e, r, body, 0)
	got := answer{word: history.None}
	if rep != nil {
		got = understand(e.Verb, rep, &a)
	}
	got.status = a.Status
	c.note(a)
	return got
}

// understand parses an answer of the execution API.
func understand(verb string, rep *reply, a *history.Event) answer {
	var body apiReply
	if json.Unmarshal(rep.body, &body) != nil {
		a.Word, a.Text = history.None, "the answer is no JSON"
		return answer{word: history.None}
	}
	got := answer{execution: body.Execution, fence: body.Fence, lease: time.Duration(body.Lease) * time.Millisecond, after: retryAfter(rep.header)}
	switch {
	case rep.status >= 300:
		got.word, a.Text, got.link = cmp.Or(body.Code, strconv.Itoa(rep.status)), body.Detail, rep.header.Get("Location")
	case verb == history.Begin && rep.status == http.StatusCreated:
		got.word = history.Execute
	case verb == history.Begin:
		got.word = history.Replay
	default:
		got.word = history.OK
	}
	var rec view
	if rep.status < 300 && body.Record != nil && json.Unmarshal(body.Record, &rec) == nil {
		if verb == history.Begin && got.word == history.Replay || rec.Status != "processing" && isFinal(verb) {
			got.outcome = rec.outcome()
		}
	}
	if verb == history.Start {
		got.effect = body.effect
	}
	a.Word, a.Fence, a.Outcome, a.Next = got.word, got.fence, got.outcome, max(body.Last, body.Expected)
	return got
}

// isFinal reports whether a verb ends a call for all its deliveries.
func isFinal(verb string) bool {
	return verb == history.Complete || verb == history.Reject || verb == history.Fail
}

func retryAfter(h http.Header) time.Duration {
	n, err := strconv.Atoi(h.Get("Retry-After"))
	if err != nil {
		return 0
	}
	return time.Duration(n) * time.Second
}

// delivery is one delivery of a call.
type delivery struct {
	op, key string
	number  int    // in a sequence
	caller  string // a stranger
	payload int
	holder  string
	wait    int
	final   bool
}

func (d *delivery) name() string { return d.op + "/" + d.order() }

// order names what the call is about: the key, and in a sequence the number, too.
func (d *delivery) order() string {
	if d.number == 0 {
		return d.key
	}
	return history.NumberKey(d.key, d.number)
}

// event makes the log entry of a request.
func (d *delivery) event(verb string, node int) history.Event {
	return history.Event{Key: d.name(), Verb: verb, Node: node, Payload: d.payload, Holder: d.holder, Caller: d.caller, Final: d.final}
}

// content is the payload: what the call is about.
func (d *delivery) content() map[string]any {
	return map[string]any{"order": d.order(), "who": "alice", "amount": d.payload}
}

// begin begins the call, or gets its outcome.
func (c *client) begin(d *delivery, node int) answer {
	e := d.event(history.Begin, node)
	e.Wait = d.wait
	h := http.Header{"Idempotency-Key": {d.key}}
	if d.holder != "" {
		h.Set("Semel-Holder", d.holder)
	}
	if d.wait > 0 {
		h.Set("Prefer", "wait="+strconv.Itoa(d.wait))
	}
	body := map[string]any{"payload": d.content()}
	if d.number > 0 {
		body["sequence"] = d.number
	}
	return c.ask(e, "/v1/operations/"+url.PathEscape(d.op)+"/executions", h, body)
}

// on sends a request about an execution. outcome is what duplicates get after its end.
func (c *client) on(d *delivery, node int, verb string, right answer, outcome string, body any) answer {
	e := d.event(verb, node)
	e.Fence, e.Outcome = right.fence, outcome
	path := map[string]string{history.Start: "effects", history.Settle: "effects/settle"}[verb]
	if path == "" {
		path = verb
	}
	return c.ask(e, "/v1/executions/"+url.PathEscape(right.execution)+"/"+path, nil, body)
}

// heldReason asks why a call is held, at the address that its refusal links to.
func (c *client) heldReason(d *delivery, node int, link string) string {
	r, err := http.NewRequest(http.MethodGet, "http://localhost"+link, nil)
	if err != nil || link == "" {
		return ""
	}
	if rules[d.op].Shared {
		r.Header.Set("Authorization", credential(d.key, d.caller))
	}
	var rep *reply
	for range 5 { // an idle connection may have been closed
		if rep, err = c.wire.send(c.nodes[node-1], r, nil, slack); err == nil && rep.status == http.StatusOK {
			break
		}
	}
	if err != nil || rep.status != http.StatusOK {
		return ""
	}
	var body struct {
		HeldReason string `json:"held_reason"`
		Record     view   `json:"record"`
	}
	if json.Unmarshal(rep.body, &body) != nil {
		return ""
	}
	return cmp.Or(body.HeldReason, body.Record.HeldReason)
}

// wire sends each request exactly once: net/http would resend a POST with an idempotency
// key if a reused connection breaks, and the rig couldn't log that. It can't where a
// request has a body that it doesn't know how to get again.
type wire struct{ transport *http.Transport }

// dialTime bounds connecting.
const dialTime = 2 * time.Second

func newWire() *wire {
	dialer := &net.Dialer{Timeout: dialTime}
	return &wire{&http.Transport{DialContext: dialer.DialContext, DisableCompression: true, MaxIdleConnsPerHost: maxUnderWay}}
}

// reply is an answer that arrived whole.
type reply struct {
	status int
	header http.Header
	body   []byte
}

// send sends a request and returns the whole answer, or an error if not all of it
// arrived in time. Then it closes the connection, like a client that hangs up.
func (w *wire) send(addr string, r *http.Request, body []byte, limit time.Duration) (rep *reply, err error) {
	ctx, cancel := context.WithTimeout(r.Context(), limit)
	defer cancel()
	r = r.Clone(ctx)
	r.Host, r.URL.Host = r.URL.Host, addr
	if len(body) > 0 {
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	}
	defer func() {
		if err != nil {
			// What broke this connection may have broken all that are idle, and whoever
			// tries again would meet one of them after the other.
			w.close()
		}
	}()
	resp, err := w.transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return &reply{resp.StatusCode, resp.Header, data}, err
}

// close ends all connections that are not in use.
func (w *wire) close() { w.transport.CloseIdleConnections() }
