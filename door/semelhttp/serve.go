package semelhttp

import (
	"context"
	"errors"
	"net/http"
	"time"

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
	h.echo(w.Header(), r.Header)
	var invalid *problem
	if own {
		// The key is found when the body has been read.
	} else if !present {
		invalid = new(keyMissing(h.route.KeyHeader))
	} else if fault != "" {
		invalid = new(keyInvalid(fault))
	}
	tap := h.guard.engine.Internal()
	ctx := tap.Arrived(r.Context(), Name, r.Header)
	if !tap.Listens() {
		h.serve(ctx, w, r, key, invalid)
		return
	}
	got := told{said: said{code: door.CodeInternal}} // if the handler panics
	defer func() {
		if errors.Is(got.err, body.ErrRefused) {
			return
		}
		e := door.EventOf(got.ans)
		e.Code, e.Status, e.Err, e.ID.Operation, e.FailedOpen = got.code, got.status, got.err, h.operation, got.open
		tap.Answered(ctx, e)
	}()
	got = h.serve(ctx, w, r, key, invalid)
}

// told is what an event says about a request.
type told struct {
	said
	ans *semel.Answer // nil if the engine has decided nothing
	err error
	// open: the request ran without a guard.
	open bool
}

// serve answers a request for the call with a key, unless something is wrong with that.
func (h *handler) serve(ctx context.Context, w http.ResponseWriter, r *http.Request, key string, invalid *problem) told {
	who, err := h.identify(r)
	if err != nil {
		why, refused := errors.AsType[*Refused](err)
		if !refused {
			h.guard.reportError(err)
			return told{said: h.refuseIdentity(w, err)}
		}
		return told{said: h.refuseIdentity(w, err), err: why}
	}
	if invalid != nil {
		return told{said: h.refuse(w, *invalid)}
	}
	var call semel.Call
	if !h.picks.ownKey() { // otherwise the runner takes a turn when the key was found
		call = h.call(r, picked{key: key}, who)
		turns := h.guard.engine.Internal()
		if got, ok := turns.Turn(ctx, &call); !ok {
			ans := got
			return told{said: h.answerDecision(w, r, &ans, PreferredWait(r.Header), call.Unproved), ans: &ans}
		}
		defer turns.EndTurn(&call)
	}

	sc := scratches.Get().(*scratch)
	defer sc.release()
	defer sc.spool.discard()
	err = h.read(r, sc)
	if errors.Is(err, body.ErrRefused) {
		return told{err: err}
	}
	if err != nil {
		return told{said: h.refuseBody(w, err)}
	}
	var found picked
	if h.picks != nil {
		var fault string
		found, fault, err = h.pick(r, &sc.payload)
		switch {
		case err != nil:
			return told{said: h.refuseBody(w, err)}
		case fault != "":
			return told{said: h.refuse(w, keyInvalid(fault))}
		case !h.picks.ownKey():
		case found.key == "" && h.route.Key == KeyOptional:
			h.unecho(w.Header(), r.Header)
			h.passRead(ctx, w, r, sc)
			return told{}
		case found.key == "":
			return told{said: h.refuse(w, h.picks.keyNotFound())}
		}
		if found.unnumbered != "" {
			return told{said: h.refuse(w, because(semel.CodeInvalidCall, found.unnumbered))}
		}
	}
	if h.picks.ownKey() {
		call = h.call(r, found, who)
	}
	if call.Fingerprint, err = h.fingerprint(r, sc, found.places); err != nil {
		return told{said: h.refuseBody(w, err)}
	}
	call.SamePayload = h.samePayload(r, sc)
	call.Wait, call.Attributes, call.Sequence = PreferredWait(r.Header), found.attributes, found.sequence
	if h.keepPayload && sc.payload.size <= int64(h.maxResult) {
		text, free, err := h.bytes(r, &sc.payload)
		free()
		if err != nil {
			return told{said: h.refuseBody(w, err)}
		}
		call.Payload = text
	}
	x := exchange{h: h, w: w, r: r, sc: sc}
	defer x.forget()
	ans, err := h.guard.runner.Do(ctx, call, door.Work{Handler: &x, Timeout: h.route.Timeout, Tx: h.route.Tx})
	if ans.Decision == semel.Execute {
		return told{said: x.answer(&ans, err), ans: &ans}
	}
	x.restore() // after a run in a transaction, if another's was faster
	switch {
	case ans.Decision != "":
		return told{said: h.answerDecision(w, r, &ans, call.Wait, call.Unproved), ans: &ans}
	case h.route.FailOpen && h.route.Tx == nil && errors.Is(err, &semel.Error{Code: semel.CodeStoreUnavailable}):
		h.guard.reportError(err)
		h.unecho(w.Header(), r.Header)
		h.passOpen(ctx, w, r, sc)
		return told{err: err, open: true}
	}
	return told{said: h.refuseError(w, err)}
}

// answerDecision answers a request that does not execute.
func (h *handler) answerDecision(w http.ResponseWriter, r *http.Request, ans *semel.Answer, wait time.Duration, unproved bool) said {
	if wait > 0 && (ans.Decision == semel.Replay || ans.Decision == semel.InFlight) {
		w.Header().Set("Preference-Applied", "wait="+seconds(wait))
	}
	if ans.Decision == semel.Replay {
		return h.replay(w, r, ans.Record)
	}
	return h.refuse(w, h.decided(ans, unproved))
}

// echo repeats request headers in the answer, as the profile asks.
func (h *handler) echo(out, in http.Header) {
	for _, name := range h.route.Profile.EchoHeaders {
		if values, ok := in[name]; ok {
			out[name] = values
		}
	}
}

// unecho takes them back, because the handler sets them itself.
func (h *handler) unecho(out, in http.Header) {
	for _, name := range h.route.Profile.EchoHeaders {
		if _, ok := in[name]; ok {
			delete(out, name)
		}
	}
}

// UnguardedHeader is set on answers to requests that ran without a guard although they
// have a key. Its value is the reason: [semel.CodeStoreUnavailable] if the store didn't
// answer, see [Route].FailOpen, or [UnguardedMethod].
const UnguardedHeader = "Semel-Unguarded"

// UnguardedMethod is the reason if the route doesn't guard the method.
const UnguardedMethod = "method"

// passOpen runs the handler without a guard while the store doesn't answer.
func (h *handler) passOpen(ctx context.Context, w http.ResponseWriter, r *http.Request, sc *scratch) {
	w.Header().Set(UnguardedHeader, string(semel.CodeStoreUnavailable))
	h.passRead(ctx, w, r, sc)
}

// passRead runs the handler without a guard, on the body that was read already.
func (h *handler) passRead(ctx context.Context, w http.ResponseWriter, r *http.Request, sc *scratch) {
	spooled := sc.spool
	sc.spool = spool{}
	defer spooled.discard()
	inner := r.WithContext(ctx)
	inner.Body = &spooled
	h.next.ServeHTTP(handlers(w), inner)
}

// refuseBody answers a request whose body did not arrive as it should.
func (h *handler) refuseBody(w http.ResponseWriter, err error) said {
	_, cut := errors.AsType[*http.MaxBytesError](err) // by a limit around the guard
	switch {
	case errors.Is(err, errTooLarge), cut:
		// The rest of the body isn't worth reading.
		w.Header().Set("Connection", "close")
		return h.refuse(w, bodyTooLarge(h.route.MaxBody))
	case errors.Is(err, errSpool):
		h.guard.reportError(err)
		p := unavailable()
		p.detail = "The request's body could not be kept while it is handled. Nothing was executed; send the same request again later."
		return h.refuse(w, p)
	}
	w.Header().Set("Connection", "close")
	return h.refuse(w, problemOf(CodeBodyUnreadable))
}

// refuseError answers a request about which the engine decided nothing.
func (h *handler) refuseError(w http.ResponseWriter, err error) said {
	e, ok := errors.AsType[*semel.Error](err)
	switch {
	case ok && e.Code == semel.CodeInvalidCall:
		return h.refuse(w, because(e.Code, refusal.Sentence(e.Message)))
	case ok && e.Code == semel.CodeForbidden:
		return h.refuse(w, because(e.Code, "The caller may not see the answer to this call."))
	case ok:
		h.guard.reportError(err)
		return h.refuse(w, problemOf(e.Code))
	case !errors.Is(err, context.Canceled): // by a caller that is gone: the answer is for proxies in between
		h.guard.reportError(err)
	}
	return h.refuse(w, unavailable())
}
