package semelhttp

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/internal/body"
	"github.com/semelhq/semel/internal/engine/callctx"
	"github.com/semelhq/semel/internal/extract"
	"github.com/semelhq/semel/internal/origin"
	"github.com/semelhq/semel/internal/payload"
	"github.com/semelhq/semel/internal/prefer"
	refusal "github.com/semelhq/semel/internal/problem"
	"github.com/semelhq/semel/safehttp"
)

// ServeHTTP guards one request.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rt := &h.route
	q := request{handler: h, w: origin.Writer(w, r, rt.Origins, rt.KeyHeader, rt.Profile.Marker), in: r}
	out, guarded := q.w.Header(), h.guards(r.Method)
	if guarded {
		q.key, q.present, q.fault = extract.HeaderKey(r.Header, rt.KeyHeader, rt.Profile.MaxKey, rt.Profile.OpaqueKeys)
		guarded = q.present || h.ownKey || rt.Key != KeyOptional
	} else if len(r.Header[rt.KeyHeader]) > 0 && !safehttp.SafeMethod(r.Method) {
		out.Set(UnguardedHeader, UnguardedMethod)
	}
	if !guarded {
		h.next.ServeHTTP(origin.Own(q.w), r)
		return
	}
	if q.present && rt.Profile.EchoKey && q.fault == "" {
		out[rt.KeyHeader] = r.Header[rt.KeyHeader]
	}
	h.echo(out, r.Header, false)
	tap := h.guard.engine.Internal()
	ctx := tap.Arrived(r.Context(), Name, r.Header)
	if !tap.Listens() {
		q.serve(ctx)
		return
	}
	q.code = door.CodeInternal // if the handler panics
	defer func() {
		if errors.Is(q.err, body.ErrRefused) {
			return
		}
		e := door.EventOf(q.ans)
		e.Code, e.Status, e.Err, e.ID.Operation, e.FailedOpen = q.code, q.status, q.err, h.operation, q.open
		tap.Answered(ctx, e)
	}()
	q.serve(ctx)
}

// echo repeats request headers in the answer, as the profile asks, or removes them again,
// because the handler sets them itself.
func (h *handler) echo(out, in http.Header, back bool) {
	for _, name := range h.route.Profile.EchoHeaders {
		if values, ok := in[name]; ok && back {
			delete(out, name)
		} else if ok {
			out[name] = values
		}
	}
}

// request is one guarded request until it is answered.
type request struct {
	*handler
	w          http.ResponseWriter
	in         *http.Request
	key, fault string // of the header
	present    bool
	call       semel.Call
	sc         *scratch
	said
	ans  *semel.Answer // nil if the engine has decided nothing
	err  error
	open bool // the request ran without a guard
}

// serve answers the request: it finds the caller, and then the key, in the header or, with the
// rest of the call, in the body.
func (q *request) serve(ctx context.Context) {
	who, err := q.caller(q.in)
	if err != nil {
		q.unidentified(err)
		return
	}
	switch {
	case q.ownKey: // the body may have it; the runner takes a turn once it is found
	case !q.present:
		q.refuse(q.keyMissing())
		return
	case q.fault != "":
		q.refuse(because(door.CodeKeyInvalid, q.fault))
		return
	default:
		q.call = q.handler.call(q.in, &extract.Found{Key: q.key}, who)
		turns := q.guard.engine.Internal()
		if got, ok := turns.Turn(ctx, &q.call); !ok {
			ans := got // which moves to the heap only here
			q.call.Wait = prefer.Wait(q.in.Header)
			q.decided(&ans)
			return
		}
		defer turns.EndTurn(&q.call)
	}
	q.sc = scratches.Get().(*scratch)
	defer q.sc.release()
	if err := q.sc.payload.Read(&q.handler.payload, q.in); err != nil {
		q.broken(err)
		return
	}
	if q.recognise(ctx, who) {
		q.deliver(ctx)
	}
}

// recognise completes the call from the request, and finds its key if the header doesn't have
// it. It reports false if it has answered the request.
func (q *request) recognise(ctx context.Context, who Caller) bool {
	p, own := &q.sc.payload, q.ownKey
	found, err := q.extract.From(q.in, p)
	switch {
	case err != nil:
		return q.broken(err)
	case found.Fault != "":
		return q.refuse(because(door.CodeKeyInvalid, found.Fault))
	case own && found.Key == "" && q.route.Key == KeyOptional:
		q.pass(ctx)
		return false
	case own && found.Key == "":
		return q.refuse(q.keyMissing())
	case found.Invalid != "":
		return q.refuse(because(semel.CodeInvalidCall, found.Invalid))
	case own:
		q.call = q.handler.call(q.in, &found, who)
	}
	if q.call.Fingerprint, err = p.Fingerprint(found.Places); err != nil {
		return q.broken(err)
	}
	q.call.SamePayload = p.Earlier(found.Places)
	q.call.Wait, q.call.Attributes, q.call.Sequence = prefer.Wait(q.in.Header), found.Attributes, found.Sequence
	if q.keepPayload && p.Size() <= int64(q.maxResult) {
		text, free, err := p.Bytes()
		free()
		if err != nil {
			return q.broken(err)
		}
		q.call.Payload = text
	}
	return true
}

// deliver delivers the call, and answers with its outcome.
func (q *request) deliver(ctx context.Context) {
	x := &q.sc.exchange
	x.h, x.w, x.r, x.sc = q.handler, q.w, q.in, q.sc
	defer x.forget()
	ans, err := q.guard.runner.Do(ctx, q.call, door.Work{Handler: x, Timeout: q.route.Timeout, Tx: q.route.Tx})
	if ans.Decision == semel.Execute {
		q.ans, q.said = &ans, x.answer(&ans, err)
		return
	}
	if x.c != nil { // it ran in a transaction, and another one was faster
		x.c.outer.Restore(q.w.Header())
	}
	switch {
	case ans.Decision != "":
		q.decided(&ans)
	case q.route.FailOpen && q.route.Tx == nil && errors.Is(err, &semel.Error{Code: semel.CodeStoreUnavailable}):
		q.guard.reportError(err)
		q.w.Header().Set(UnguardedHeader, string(semel.CodeStoreUnavailable))
		q.pass(ctx)
		q.err, q.open = err, true
	default:
		q.undecided(ctx, err)
	}
}

// decided answers a request that doesn't execute.
func (q *request) decided(ans *semel.Answer) {
	q.ans = ans
	if q.call.Wait > 0 && (ans.Decision == semel.Replay || ans.Decision == semel.InFlight) {
		q.w.Header().Set("Preference-Applied", prefer.Applied(q.call.Wait))
	}
	switch {
	case q.follow(ans):
		return
	case ans.Decision == semel.Replay:
		q.said = q.replay(q.w, q.in, ans.Record)
		return
	}
	q.refuse(q.handler.decided(ans, q.call.Unproved))
}

// refuse answers with a problem, and reports false.
func (q *request) refuse(p problem) bool {
	q.said = q.handler.refuse(q.w, p)
	return false
}

// UnguardedHeader is set on answers to requests that ran without a guard although they
// have a key. Its value is the reason: [semel.CodeStoreUnavailable] if the store didn't
// answer, see [Route].FailOpen, or [UnguardedMethod].
const UnguardedHeader = "Semel-Unguarded"

// UnguardedMethod is the reason if the route doesn't guard the method.
const UnguardedMethod = "method"

// pass runs the handler without a guard, on the body that was already read.
func (q *request) pass(ctx context.Context) {
	q.echo(q.w.Header(), q.in.Header, true)
	spooled := q.sc.payload.Take()
	defer spooled.Discard()
	inner := q.in.WithContext(ctx)
	inner.Body = &spooled
	q.next.ServeHTTP(origin.Own(q.w), inner)
	q.said = said{}
}

// broken answers a request with a body that could not be read, and reports false.
func (q *request) broken(err error) bool {
	_, cut := errors.AsType[*http.MaxBytesError](err) // a limit around the guard
	switch {
	case errors.Is(err, body.ErrRefused): // the caller answers it
		q.err = err
		return false
	case errors.Is(err, payload.ErrTooLarge), cut:
		// The rest of the body isn't worth reading.
		q.w.Header().Set("Connection", "close")
		return q.refuse(because(door.CodeBodyTooLarge, "The request's body is larger than "+strconv.FormatInt(q.route.MaxBody, 10)+" bytes. Nothing was executed."))
	case errors.Is(err, payload.ErrSpool):
		q.guard.reportError(err)
		p := unavailable()
		p.Detail = "The request's body could not be kept while it is handled. Nothing was executed; send the same request again later."
		return q.refuse(p)
	}
	q.w.Header().Set("Connection", "close")
	return q.refuse(problemOf(door.CodeBodyUnreadable))
}

// undecided answers a request about which the engine decided nothing.
func (q *request) undecided(ctx context.Context, err error) bool {
	e, ok := errors.AsType[*semel.Error](err)
	switch {
	case ok && e.Code == semel.CodeInvalidCall:
		return q.refuse(because(e.Code, refusal.Sentence(e.Message)))
	case ok && e.Code == semel.CodeForbidden:
		return q.refuse(because(e.Code, "The caller may not see the answer to this call."))
	case ok:
		q.guard.reportError(err)
		return q.refuse(problemOf(e.Code))
	case !callctx.HungUp(ctx, err): // otherwise the answer is for proxies in between
		q.guard.reportError(err)
	}
	return q.refuse(unavailable())
}
