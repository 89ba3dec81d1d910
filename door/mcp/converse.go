package mcp

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"strconv"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/door/judge"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/door/semelproxy"
	"github.com/semelhq/semel/internal/body"
	"github.com/semelhq/semel/internal/canon"
	"github.com/semelhq/semel/internal/jsonrpc"
	"github.com/semelhq/semel/internal/jsonscan"
	"github.com/semelhq/semel/internal/meaning"
	"github.com/semelhq/semel/internal/relay"
	"github.com/semelhq/semel/internal/sse"
	"github.com/semelhq/semel/internal/toolcall"
	"github.com/semelhq/semel/store"
)

// CallEffect is the ledger's name for sending a call to the server.
const CallEffect = "semel.mcp.call"

// conversation is one delivery of a tool call.
type conversation struct {
	*Gateway
	relay.Follower
	req    *request
	who    semelhttp.Caller
	asked  toolcall.Call
	policy *policy
	call   semel.Call
	loose  bool // nothing tells the call from a repetition

	stream   *stream // of its answer, and what follows that; nil: the call has a key
	delivery *semelproxy.Delivery
	repeats  bool // the call is the echo of another

	interest context.Context // ends when the client has left, or has cancelled the call
	left     context.CancelFunc

	recording *relay.First // of the server's stream
	result    []byte       // of the server, if it gave one
	leave     func()       // sends the end of the server's answer, once its outcome is recorded
	code      semel.Code   // the refusal that the caller gets instead
}

// converse delivers the call, answers its caller, and returns the event about that.
func (c *conversation) converse(ctx context.Context) semel.Delivered {
	defer func() {
		if c.stream != nil && c.stream.ended.IsZero() {
			c.stream.finished(false, nil) // nobody was answered
		}
	}()
	ans, err := c.deliver(ctx, c.call, c)
	c.recording.Finish()
	e := door.EventOf(&ans)
	result, f := c.found(&ans, err)
	var o outcome // of a replay
	if f == nil && ans.Decision == semel.Replay {
		o, f = c.ofTask(ctx, ans.Record, recall(result.Data))
	}
	switch {
	case f != nil:
		if f.code == semel.CodeThrottled || f.code == semel.CodeForbidden {
			c.withdraw()
		}
		// The call that a person is to confirm elsewhere is the next equal one.
		c.end(f.effect != meaning.Unknown && (c.policy.op.Confirmation == nil || c.asks()), func() { c.refuse(*f) })
		e.Code = f.code
	case ans.Decision == semel.Execute:
		c.continues(context.WithoutCancel(ctx))
		c.end(true, c.leave)
		c.follow(context.WithoutCancel(ctx), ans.Record)
	default:
		c.end(true, func() { c.replay(o) })
	}
	return e
}

// found finds what a delivery gets: a refusal, the recorded result, or, for a call that ran here, neither.
func (c *conversation) found(ans *semel.Answer, err error) (semel.Result, *refusal) {
	var f refusal
	switch result, missing := door.Outcome(ans, err); {
	case ans.Decision == semel.Execute && err != nil: // it isn't recorded for certain
		f = refusalFor(semel.CodeUnknown)
	case ans.Decision == semel.Execute && c.code != "":
		f = refusalFor(c.code)
	case missing != nil:
		if f = refusalOf(missing, ans); ans.Challenge != nil {
			f.confirm, f.record = c.tokenOf(ans.Challenge), ans.Record.ID.String()
		}
	default:
		return result, nil
	}
	return semel.Result{}, &f
}

// end writes the end of the answer. What leaves the outcome open isn't the answer to the call, so
// it counts as lost wherever it arrives.
func (c *conversation) end(outcome bool, write func()) {
	defer c.Limit()()
	if c.stream == nil {
		write()
		return
	}
	c.delivery.Ending()
	write()
	c.stream.finished(outcome, c.delivery)
}

// deliver runs the call, or joins whoever runs it: a duplicate of one that is under way comes from a
// client that gave up on it, and gets its outcome.
func (c *conversation) deliver(ctx context.Context, call semel.Call, h door.Handler) (ans semel.Answer, err error) {
	for {
		ans, err = c.runner.Do(ctx, call, door.Work{Handler: h})
		if err != nil || ans.Decision == semel.Execute || !c.Follow(ctx, c.engine.Internal(), &call, &ans) {
			return ans, err
		}
	}
}

// Run sends the call, and says how the attempt ends by what the server says. Where the claim has
// promised a ledger, that has an effect for the call, whatever the operation declares by now.
func (c *conversation) Run(x door.Run) (end semel.Ending) {
	a := x.Attempt
	send := func(key string) semel.Ending { return c.forward(a, key) }
	switch {
	case c.delivery != nil && c.delivery.Gone():
		// Its client has asked again by now, perhaps, and been answered: the network may have held
		// this one back.
		c.code = semel.CodeAborted
		return semel.Ending{Disposition: semel.DispositionAborted, Failure: store.Failure{Message: "the client had left before its call was sent"}}
	case !a.Record().Policy.Ledger:
		return send(semel.EffectKey(a.Record(), CallEffect))
	}
	end, code := semelproxy.InLedger(a, CallEffect, send)
	c.code = cmp.Or(code, c.code)
	return end
}

// forward sends the call on, and passes on what comes back: events of a stream at once, and the
// response when its outcome is recorded.
func (c *conversation) forward(a *semel.Attempt, key string) semel.Ending {
	// A server can't be called back, so neither the end of the lease nor the client's leaving
	// ends the call: that would only lose its answer.
	k := new(sse.Sink)
	ctx, cancel := k.Within(context.WithoutCancel(a.Context()), c.opts.Timeout)
	defer cancel()
	if c.policy.OnDisconnect == CancelCall {
		defer context.AfterFunc(c.interest, cancel)()
	}
	var final, event []byte // the response in a stream, and the event that has it
	k.Begun = func() {
		if !c.Began {
			c.Began = true
			k.Head.Set("X-Accel-Buffering", "no")
			k.CopyHead(c.W, judge.EffectHeader)
		}
		c.recording = relay.Record(c.engine.Internal(), a, c.req.head(), c.opts.MaxStream, c.W, c.Limit)
	}
	place := sse.NewPlace()
	k.Event = func(raw []byte) {
		place.Note(raw)
		data := sse.Data(raw)
		_, _, ok := jsonrpc.ReadAnswer(data, c.req.id)
		switch m, err := jsonrpc.ReadMessage(data); {
		case final != nil: // a server answers once
		case ok:
			final, event = data, raw
			cancel() // it may leave the stream open
		case err == nil && m.Answers: // something else
		default:
			c.recording.Pass(raw)
		}
	}
	err := c.proxy.Send(k, body.With(ctx, c.req.in, c.req.body), key)
	for more := k; final == nil && more.Stream && !c.req.modern && place.Wait(ctx); {
		more = k.Rest()
		err = c.proxy.Send(more, place.Rest(ctx, c.req.in), "")
	}
	if err != nil && final == nil {
		e := door.Trouble(Name, err, slog.LevelWarn, "server failed", c.opts.Attrs...)
		e.ID = a.ID()
		c.engine.Internal().Troubled(e)
		found := judge.NoAnswer(err)
		if found.Verdict == judge.Aborted {
			c.code = door.CodeUnreachable
		}
		return c.ending(found, outcome{})
	}
	if k.Stream {
		c.leave = func() {
			if c.loose {
				event = append(sse.Fields(event), sse.JSON(marked(final, markRepetition))...)
			}
			c.Say(event)
		}
		return c.judged(k, final, sse.Fields(event))
	}
	c.leave = func() { c.whole(k) }
	return c.judged(k, k.Body.Bytes(), nil)
}

// whole passes on an answer that isn't a stream.
func (c *conversation) whole(k *sse.Sink) {
	text := k.Body.Bytes()
	if c.loose {
		text = marked(text, markRepetition)
	}
	if c.Began { // by a stream of an earlier attempt
		c.say(0, "", text)
		return
	}
	k.Head.Set("Content-Length", strconv.Itoa(len(text)))
	k.CopyHead(c.W, judge.EffectHeader)
	_, _ = c.W.Write(text) // a caller who is gone will ask again
}

// judged says how the attempt ends by the response of the server, or by what came in its place.
func (c *conversation) judged(k *sse.Sink, text, fields []byte) semel.Ending {
	said := judge.Answer{Status: k.Status, Header: k.Head}
	if !k.Stream && !k.Over {
		said.Body = text
	}
	found, o := c.policy.rules.Of(said), outcome{Status: k.Status}
	result, failure, ok := jsonrpc.ReadAnswer(text, c.req.id)
	if o.Stream = c.recording.Mark(); ok && o.Stream != nil {
		o.Form, o.Response, o.Fields = streamForm, text, string(fields)
	}
	switch {
	case ok && result != nil:
		o.Result, c.result = result, result
		if found.Verdict == judge.Completed && toolcall.Failed(result) && !found.Declared() {
			found.Verdict, found.Code = judge.Failed, "isError"
		}
	case ok:
		o.Error = failure
		code, _ := strconv.Atoi(string(jsonscan.Member(failure, "code"))) // zero: nobody knows it
		if !found.Declared() && (found.Verdict == judge.Completed || found.Verdict == judge.Rejected) {
			found = c.policy.rules.MCP(code, k.Head)
		}
	default:
		o.Error = jsonrpc.ErrorOf(jsonrpc.InvalidRequest, "The server refused the call with the status "+strconv.Itoa(k.Status)+".", nil)
		if found.Verdict == judge.Completed && !found.Said {
			found.Verdict = judge.Unknown // somebody else's word about the call, or a part of the server's
		}
		if k.Status == http.StatusNotFound && !found.Declared() && len(c.req.in.Header["Mcp-Session-Id"]) > 0 {
			found.Verdict = judge.Aborted // the session is over, and the client begins another
		}
	}
	return c.ending(found, o)
}

// cancelledMethod is the notification that cancels a call in the versions before [Modern].
const cancelledMethod = "notifications/cancelled"

// flightOf names a guarded call that is under way at this gateway: ids are unique in a session.
func flightOf(in *http.Request, who *semelhttp.Caller, id []byte) string {
	plain, _ := canon.Canonicalize(id, canon.Exact) // an id of nothing has no flight
	return string(canon.FrameList(nil, []string{who.Tenant, who.Principal, who.Credential, in.Header.Get("Mcp-Session-Id"), string(plain)}))
}

// cancelled takes a cancellation of a guarded call that is under way here. It reports false for
// any other, which passes.
func (g *Gateway) cancelled(req *request, who *semelhttp.Caller) bool {
	found, ok := g.flights.Load(flightOf(req.in, who, jsonscan.Member(req.params, "requestId")))
	if !ok {
		return false
	}
	c := found.(*conversation)
	c.left()
	if c.stream != nil {
		c.stream.heard(false)
	}
	return true
}
