package semelhttp

import (
	"context"
	"errors"
	"net/http"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/internal/body"
	refusal "github.com/semelhq/semel/internal/problem"
	"github.com/semelhq/semel/safehttp"
)

// ServeHTTP guards one request.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w = h.forOrigin(w, r)
	if !h.guards(r.Method) {
		if len(r.Header[h.route.KeyHeader]) > 0 && !safehttp.SafeMethod(r.Method) {
			w.Header().Set(UnguardedHeader, UnguardedMethod)
		}
		h.next.ServeHTTP(handlers(w), r)
		return
	}
	key, present, fault := requestKey(r.Header, h.route.KeyHeader, h.route.Profile.MaxKey, h.route.Profile.OpaqueKeys)
	own := h.picks.ownKey()
	if !present && !own && h.route.Key == KeyOptional {
		h.next.ServeHTTP(handlers(w), r)
		return
	}
	if present && h.route.Profile.EchoKey && fault == "" {
		w.Header()[h.route.KeyHeader] = r.Header[h.route.KeyHeader]
	}
	h.echo(w.Header(), r.Header, false)
	q := request{handler: h, w: w, in: r, key: key, present: present, fault: fault}
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

// request is one request on its way through the guard. Each step reports false if it has
// answered the request.
type request struct {
	*handler
	w          http.ResponseWriter
	in         *http.Request
	key, fault string // of the header
	present    bool
	who        Caller
	call       semel.Call
	sc         *scratch
	said
	ans  *semel.Answer // nil if the engine has decided nothing
	err  error
	open bool // the request ran without a guard
}

// serve answers the request.
func (q *request) serve(ctx context.Context) {
	if !q.known() {
		return
	}
	var picked picked
	if !q.picks.ownKey() { // otherwise the runner takes a turn when the key was found
		picked.key = q.key
		q.call = q.handler.call(q.in, picked, q.who)
		turns := q.guard.engine.Internal()
		if got, ok := turns.Turn(ctx, &q.call); !ok {
			ans := got // which moves to the heap only here
			q.call.Wait = PreferredWait(q.in.Header)
			q.decided(&ans)
			return
		}
		defer turns.EndTurn(&q.call)
	}
	q.sc = scratches.Get().(*scratch)
	defer q.sc.release()
	defer q.sc.spool.discard()
	if q.read() && q.pick(ctx, &picked) && q.complete(&picked) {
		q.deliver(ctx)
	}
}

// known identifies the caller, and refuses a request without a key where it must have one.
func (q *request) known() (ok bool) {
	var err error
	if q.who, err = q.identify(q.in); err != nil {
		if why, refused := errors.AsType[*Refused](err); refused {
			q.err = why
		} else {
			q.guard.reportError(err)
		}
		q.said = q.refuseIdentity(q.w, err)
		return false
	}
	switch {
	case q.picks.ownKey(): // the key is found when the body has been read
	case !q.present:
		return q.refuse(keyMissing(q.route.KeyHeader))
	case q.fault != "":
		return q.refuse(keyInvalid(q.fault))
	}
	return true
}

// refuse answers with a problem, and reports false.
func (q *request) refuse(p problem) bool {
	q.said = q.handler.refuse(q.w, p)
	return false
}

// read reads the body.
func (q *request) read() bool {
	err := q.handler.read(q.in, q.sc)
	if errors.Is(err, body.ErrRefused) {
		q.err = err
		return false
	}
	return err == nil || q.broken(err)
}

// pick finds what the route takes from the request, such as the key.
func (q *request) pick(ctx context.Context, found *picked) bool {
	if q.picks == nil {
		return true
	}
	got, fault, err := q.handler.pick(q.in, &q.sc.payload)
	*found = got
	switch own := q.picks.ownKey(); {
	case err != nil:
		return q.broken(err)
	case fault != "":
		return q.refuse(keyInvalid(fault))
	case own && got.key == "" && q.route.Key == KeyOptional:
		q.pass(ctx)
		return false
	case own && got.key == "":
		return q.refuse(q.picks.keyNotFound())
	case got.unnumbered != "":
		return q.refuse(because(semel.CodeInvalidCall, got.unnumbered))
	case own:
		q.call = q.handler.call(q.in, got, q.who)
	}
	return true
}

// complete completes the call with what the body says.
func (q *request) complete(found *picked) bool {
	var err error
	if q.call.Fingerprint, err = q.fingerprint(q.in, q.sc, found.places); err != nil {
		return q.broken(err)
	}
	q.call.SamePayload = q.samePayload(q.in, q.sc)
	q.call.Wait, q.call.Attributes, q.call.Sequence = PreferredWait(q.in.Header), found.attributes, found.sequence
	if q.keepPayload && q.sc.payload.size <= int64(q.maxResult) {
		text, free, err := q.bytes(q.in, &q.sc.payload)
		free()
		if err != nil {
			return q.broken(err)
		}
		q.call.Payload = text
	}
	return true
}

// deliver delivers the call, and answers with what became of it.
func (q *request) deliver(ctx context.Context) {
	x := exchange{h: q.handler, w: q.w, r: q.in, sc: q.sc}
	defer x.forget()
	ans, err := q.guard.runner.Do(ctx, q.call, door.Work{Handler: &x, Timeout: q.route.Timeout, Tx: q.route.Tx})
	if ans.Decision == semel.Execute {
		q.ans, q.said = &ans, x.answer(&ans, err)
		return
	}
	x.restore() // after a run in a transaction, if another's was faster
	switch {
	case ans.Decision != "":
		q.decided(&ans)
	case q.route.FailOpen && q.route.Tx == nil && errors.Is(err, &semel.Error{Code: semel.CodeStoreUnavailable}):
		q.guard.reportError(err)
		q.w.Header().Set(UnguardedHeader, string(semel.CodeStoreUnavailable))
		q.pass(ctx)
		q.err, q.open = err, true
	default:
		q.undecided(err)
	}
}

// decided answers a request that does not execute.
func (q *request) decided(ans *semel.Answer) {
	q.ans = ans
	if q.call.Wait > 0 && (ans.Decision == semel.Replay || ans.Decision == semel.InFlight) {
		q.w.Header().Set("Preference-Applied", "wait="+seconds(q.call.Wait))
	}
	if ans.Decision == semel.Replay {
		q.said = q.replay(q.w, q.in, ans.Record)
		return
	}
	q.refuse(q.handler.decided(ans, q.call.Unproved))
}

// echo repeats request headers in the answer, as the profile asks, or takes them back,
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

// UnguardedHeader is set on answers to requests that ran without a guard although they
// have a key. Its value is the reason: [semel.CodeStoreUnavailable] if the store didn't
// answer, see [Route].FailOpen, or [UnguardedMethod].
const UnguardedHeader = "Semel-Unguarded"

// UnguardedMethod is the reason if the route doesn't guard the method.
const UnguardedMethod = "method"

// pass runs the handler without a guard, on the body that was read already.
func (q *request) pass(ctx context.Context) {
	q.echo(q.w.Header(), q.in.Header, true)
	spooled := q.sc.spool
	q.sc.spool = spool{}
	defer spooled.discard()
	inner := q.in.WithContext(ctx)
	inner.Body = &spooled
	q.next.ServeHTTP(handlers(q.w), inner)
	q.said = said{}
}

// broken answers a request whose body did not arrive as it should, and reports false.
func (q *request) broken(err error) bool {
	_, cut := errors.AsType[*http.MaxBytesError](err) // by a limit around the guard
	switch {
	case errors.Is(err, errTooLarge), cut:
		// The rest of the body isn't worth reading.
		q.w.Header().Set("Connection", "close")
		return q.refuse(bodyTooLarge(q.route.MaxBody))
	case errors.Is(err, errSpool):
		q.guard.reportError(err)
		p := unavailable()
		p.detail = "The request's body could not be kept while it is handled. Nothing was executed; send the same request again later."
		return q.refuse(p)
	}
	q.w.Header().Set("Connection", "close")
	return q.refuse(problemOf(CodeBodyUnreadable))
}

// undecided answers a request about which the engine decided nothing.
func (q *request) undecided(err error) bool {
	e, ok := errors.AsType[*semel.Error](err)
	switch {
	case ok && e.Code == semel.CodeInvalidCall:
		return q.refuse(because(e.Code, refusal.Sentence(e.Message)))
	case ok && e.Code == semel.CodeForbidden:
		return q.refuse(because(e.Code, "The caller may not see the answer to this call."))
	case ok:
		q.guard.reportError(err)
		return q.refuse(problemOf(e.Code))
	case !errors.Is(err, context.Canceled): // by a caller that is gone: the answer is for proxies in between
		q.guard.reportError(err)
	}
	return q.refuse(unavailable())
}
