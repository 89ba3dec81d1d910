package a2a

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"strconv"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/door/judge"
	"github.com/semelhq/semel/internal/body"
	"github.com/semelhq/semel/internal/canon"
	"github.com/semelhq/semel/internal/jsonscan"
	"github.com/semelhq/semel/internal/relay"
	"github.com/semelhq/semel/internal/sse"
	"github.com/semelhq/semel/store"
)

// replayed marks answers to duplicates, as in other doors over HTTP.
const replayed = "Idempotency-Replayed"

// forwarding is the exchange through a gateway.
type forwarding struct {
	*Gateway
	relay.Follower
	req       *request
	recording *relay.First // of the agent's stream
	last      []byte       // the event that ends that; nil: there is none yet
	fail      []byte       // the error in it
}

func (g *Gateway) forwarding(w http.ResponseWriter, req *request) *forwarding {
	f := &forwarding{Gateway: g, req: req, Follower: relay.Follower{W: w, R: req.in, Takes: true, Wait: g.wait, Most: g.timeout / 4, Marker: replayed, Mark: markOf}}
	f.Own = f.own
	return f
}

// send forwards the message, and passes the answer on as it comes.
func (f *forwarding) send(ctx context.Context, key string, c *conversation) (judge.Finding, outcome) {
	k := new(sse.Sink)
	ctx, cancel := k.Within(ctx, f.timeout)
	defer cancel()
	k.Begun = func() {
		f.begin(k)
		most := f.opts.MaxStream
		if !c.stream {
			most, c.stream = 0, true // nobody asked for one
		}
		f.recording = relay.Record(f.engine.Internal(), c.execution.Attempt, nil, most, f.W, f.Limit)
	}
	k.Event = func(raw []byte) {
		if ctx.Err() == nil && f.event(raw, c) {
			cancel() // an agent may leave the stream open, and keep it busy
		}
	}
	err := f.proxy.Send(k, body.With(ctx, f.req.in, f.req.body), key)
	if f.last != nil {
		err = nil // the answer is whole, whatever ended the stream
	}
	if err != nil {
		e := door.Trouble(Name, err, slog.LevelWarn, "agent failed", f.opts.Attrs...)
		e.ID = c.execution.Attempt.ID()
		f.engine.Internal().Troubled(e)
	}
	said := judge.Answer{Status: k.Status, Header: k.Head}
	if !k.Stream && !k.Over {
		said.Body = k.Body.Bytes()
	}
	found, o := f.rules.Of(said), outcome{State: Failed, Status: k.Status, Error: f.fail}
	if o.Stream = f.recording.Mark(); o.Stream != nil && err == nil {
		o.Last = string(f.last)
	}
	switch {
	case err != nil:
		found, c.code = judge.NoAnswer(err), semel.CodeUnknown
		if found.Verdict == judge.Aborted {
			c.code = door.CodeUnreachable
		}
	case k.Stream && f.fail != nil && !found.Declared():
		found = f.req.judge(&f.rules, f.fail, k.Head)
		o.Status = found.Status
	case k.Stream && c.said.kind == "" && !found.Declared():
		found, c.code = judge.Finding{Status: k.Status}, semel.CodeUnknown
	case !k.Stream:
		return f.whole(c, k, found, o)
	}
	return found, o
}

// event passes on an event of the agent's stream, and reports whether that is the end. A task that
// is paused may go on in the same stream, so its state is the end only if nothing follows.
func (f *forwarding) event(raw []byte, c *conversation) (over bool) {
	leave := func() { f.recording.Pass(raw) }
	result, failure, ok := f.req.unwrap(sse.Data(raw))
	e := readEvent(result)
	if f.last = nil; ok && (failure != nil || e.final()) {
		f.last = raw
	}
	switch {
	case ok && failure != nil:
		f.fail = failure
		c.hold(true, leave)
		return true
	case ok && e.kind != "":
		c.hear(e, result, leave)
		return e.over()
	}
	c.hold(false, leave) // a comment, or not part of A2A
	return false
}

// whole judges an answer that isn't a stream.
func (f *forwarding) whole(c *conversation, k *sse.Sink, found judge.Finding, o outcome) (judge.Finding, outcome) {
	text := k.Body.Bytes()
	leave := func() {
		k.CopyHead(f.W, judge.EffectHeader)
		_, _ = f.W.Write(text) // a caller who is gone will retry
	}
	result, failure, ok := f.req.unwrap(text)
	e := readEvent(result)
	switch {
	case found.Verdict != judge.Completed || found.Declared():
	case ok && failure != nil:
		found = f.req.judge(&f.rules, failure, k.Head)
	case ok && (e.kind == kindTask || e.kind == kindMessage):
		c.stream = false // even if a stream was asked for
		c.hear(e, result, leave)
		return found, o
	default:
		found.Verdict = judge.Unknown // somebody else says this about the message
	}
	switch {
	case ok && failure != nil:
		o.Error = bytes.Clone(failure)
	case f.req.rpc || canon.Check(text, canon.Exact) != nil:
		// The body isn't the agent's, and may be anything: a duplicate gets only its meaning.
		refused := refusalFor(semel.CodeRejected)
		_, o.Error, _ = f.req.unwrap(refused.text(f.req))
	default:
		o.Error = bytes.Clone(text)
	}
	if found.Verdict == judge.Unknown && (k.Status < 400 && o.Error != nil && !(ok && failure != nil) || k.Over) {
		c.code = semel.CodeUnknown // it looks like a success, or is lost
		return found, o
	}
	c.hold(true, leave)
	return found, o
}

// judge judges an error in an answer with a success status.
func (r *request) judge(rules *judge.Rules, failure []byte, header http.Header) judge.Finding {
	inner := failure
	if !r.rpc {
		inner = jsonscan.Member(failure, "error")
	}
	code, _ := strconv.Atoi(string(jsonscan.Member(inner, "code"))) // zero isn't a known code
	if r.rpc {
		return rules.A2A(code, header)
	}
	return rules.Of(judge.Answer{Status: code, Header: header})
}

// ask asks with the caller's own credential, so that the agent decides what to show.
func (f *forwarding) ask(ctx context.Context, task string) json.RawMessage {
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	k := &sse.Sink{}
	if err := f.proxy.Send(k, f.req.asking(ctx, task, false), ""); err != nil || k.Status != http.StatusOK || k.Stream || k.Over {
		return nil
	}
	result, failure, ok := f.req.unwrap(k.Body.Bytes())
	if !ok || failure != nil {
		return nil
	}
	if answer := answerWith(result); readEvent(answer).kind == kindTask && readEvent(answer).task == task {
		return answer
	}
	return nil
}

func (f *forwarding) follow(ctx context.Context, task string) bool {
	k, send, followed := new(sse.Sink), relay.Events(f.W, f.Most), false
	ctx, cancel := k.Within(ctx, f.timeout)
	defer cancel()
	k.Event = func(raw []byte) {
		result, _, ok := f.req.unwrap(sse.Data(raw))
		e := readEvent(result)
		if !followed && (!ok || e.task != task) {
			return // a comment, or the error for nothing to follow
		}
		followed = true
		if !f.Began {
			f.W.Header().Set(replayed, "true")
		}
		f.begin(k)
		if send([][]byte{raw}) != nil || ok && e.final() {
			cancel() // an agent may leave the stream open, see [inside.follow]
		}
	}
	_ = f.proxy.Send(k, f.req.asking(ctx, task, true), "") // the follower sees that it broke off
	return followed
}

// begin sends the head of a stream, unless one has left.
func (f *forwarding) begin(k *sse.Sink) {
	if !f.Began {
		f.Began = true
		k.CopyHead(f.W, judge.EffectHeader)
	}
}

func (f *forwarding) rejoin(ctx context.Context, call *semel.Call, ans *semel.Answer) (began, again bool) {
	again = f.req.stream && f.opts.MaxStream > 0 && f.Follow(ctx, f.engine.Internal(), call, ans)
	return f.Began, again
}

// markOf is the mark of a stream that has ended with its task. How others go on, the agent says.
func markOf(rec *store.Record) []byte {
	if o, ok := recorded(rec.Result); ok && (o.State == Completed || o.State == Failed) {
		return o.Stream
	}
	return nil
}

// own is an event of another delivery under the id of this request.
func (f *forwarding) own(event, _ []byte) []byte {
	data := sse.Data(event)
	if id := jsonscan.Member(data, "id"); !f.req.rpc || id == nil || bytes.Equal(id, f.req.id) {
		return event
	}
	return append(sse.Fields(event), sse.JSON(jsonscan.Replaced(data, func([]byte) []byte { return f.req.id }, "id"))...)
}

// replay answers a caller who wants a stream with a single event, unless it is an error.
func (f *forwarding) replay(o *outcome) {
	text := f.req.wrap(o.Answer, o.Error)
	if f.Began {
		events := sse.Split(o.Last)
		if events == nil {
			events = [][]byte{sse.JSON(text)}
		}
		for _, event := range events {
			f.Say(f.own(event, nil))
		}
		return
	}
	f.W.Header().Set(replayed, "true")
	f.W.Header().Set("Cache-Control", "no-store")
	f.W.Header().Set("Content-Type", contentJSON)
	switch {
	case len(o.Error) == 0 && f.req.stream:
		f.W.Header().Set("Content-Type", sse.MediaType)
		text = sse.JSON(text)
	case len(o.Error) > 0 && !f.req.rpc && o.Status != 0:
		f.W.WriteHeader(o.Status)
	}
	_, _ = f.W.Write(text) // a caller who is gone will retry
}

// refuse adds a refusal to a stream that has begun.
func (f *forwarding) refuse(r refusal) {
	if f.Began {
		f.recording.Finish()
		f.Say(sse.JSON(r.text(f.req)))
		return
	}
	r.write(f.W, f.req)
}
