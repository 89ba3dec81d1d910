package semelhttp

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/door/judge"
	"github.com/semelhq/semel/internal/answer"
	"github.com/semelhq/semel/internal/origin"
	"github.com/semelhq/semel/internal/reference"
	"github.com/semelhq/semel/store"
)

// errWhole is why no part of an answer leaves before its transaction has committed.
var errWhole = errors.New("semelhttp: the answer is larger than Operation.MaxResult or takes the connection over, and a route with Tx gives an answer only once it is recorded whole")

// exchange is one guarded request with a handler that may run: once under an attempt, or
// several times in transactions that others cause to be rolled back.
type exchange struct {
	h     *handler
	w     http.ResponseWriter
	r     *http.Request
	sc    *scratch
	c     *capture      // of the newest run; nil before the first
	inner *http.Request // of that run
	end   semel.Ending  // of that run
	late  bool          // rolled back because it was late
}

// Run runs the handler and, by its answer, says how the attempt or the transaction ends.
func (x *exchange) Run(e door.Run) semel.Ending {
	if x.c != nil { // headers of an earlier run belong to an answer that nobody gets
		x.c.outer.Restore(x.w.Header())
		x.forget()
	}
	// The handler may use its writer and its body for longer than it should, so neither
	// is reused.
	c := &capture{w: x.w, h: x.h, method: x.r.Method, origin: x.r.Header.Get(origin.Header), sc: x.sc, signedAnew: x.h.credentials.SignedAnew(x.r)}
	c.scope.capture, c.scope.Run = c, e
	if e.Tx == nil {
		c.body = x.sc.payload.Take()
	} else {
		c.body = x.sc.payload.Again()
	}
	// The handler shares the headers that were set around it, as it would without a guard, so
	// it can add to them or remove them.
	c.out, c.outer = x.sc.answer[:0], x.sc.outer[:0].Add(x.w.Header())
	x.h.echo(x.w.Header(), x.r.Header, true)
	x.c, x.inner = c, x.r.WithContext(&c.scope)
	x.inner.Body = &c.body
	delete(x.inner.Header, judge.EffectHeader) // a handler might copy it into its answer
	accepted := answer.Narrow(x.inner.Header)
	defer c.scope.close()
	defer func() {
		if accepted != nil { // compression outside the guard may look only now
			x.inner.Header[answer.AcceptHeader] = accepted
		}
		if !c.closed {
			c.abandon()
		}
	}()
	x.h.next.ServeHTTP(c, x.inner)
	if v, gone := c.scope.word(); c.status == 0 && !x.h.rules.Financial && !gone && v == nil {
		c.silence()
	}
	c.closed = true
	x.end = c.ending()
	if x.h.learns {
		x.end.Result.Attributes = c.learned()
	}
	x.late = false
	if e.Tx != nil && e.Late() && c.failed == nil {
		if v, _ := c.scope.word(); v == nil {
			x.end = semel.Ending{Disposition: semel.DispositionAborted, Failure: x.end.Failure}
			x.late = c.status < http.StatusInternalServerError // otherwise that is the answer already
		}
	}
	return x.end
}

// ending decides how the attempt of an answered request ends.
func (c *capture) ending() semel.Ending {
	v, gone := c.scope.word()
	if v != nil {
		end := semel.Ending{Disposition: v.end, Failure: store.Failure{Code: string(v.answer.Code), Message: v.why}}
		if c.through && v.end == semel.DispositionAborted {
			end.Disposition = semel.DispositionAbandoned // part of the answer has left, so something happened
		}
		return end
	}
	switch {
	case gone:
		return semel.Ending{Disposition: semel.DispositionAbandoned, Failure: store.Failure{Message: "the handler panicked"}}
	case c.status == 0:
		return semel.Ending{Disposition: semel.DispositionAbandoned, Failure: store.Failure{Message: "the handler returned without an answer"}}
	}
	failure := store.Failure{Code: strconv.Itoa(c.status)}
	c.judgeWhole()
	switch {
	case c.whole():
		failure.Message = "the handler answered " + failure.Code
		if c.failed != nil {
			return semel.Ending{Disposition: semel.DispositionAborted, Failure: failure}
		}
	case c.scope.Attempt.EffectOpen() && slices.ContainsFunc(door.Effects(c.scope.Attempt), func(ef store.EffectRecord) bool { return ef.State == store.EffectStarted }):
		failure.Message = "the handler answered " + failure.Code + " and left an effect without a result"
		return semel.Ending{Failure: failure}
	case c.status >= 500 && !c.found.Declared() && c.scope.stopped():
		// The handler was told to stop, and says that it failed. Before that it may have done
		// anything.
		failure.Message = "the handler was told to stop and answered " + failure.Code
		return semel.Ending{Disposition: semel.DispositionAbandoned, Failure: failure}
	case c.announced && c.h.runsAgain(c.found.Verdict):
		failure.Message = c.found.Why() + ", but a part of the answer has left"
		return semel.Ending{Disposition: semel.DispositionAbandoned, Failure: failure}
	}
	switch v := c.found.Verdict; v {
	case judge.Completed:
		return semel.Ending{Disposition: semel.DispositionCompleted, Result: c.result()}
	case judge.Rejected:
		return semel.Ending{Disposition: semel.DispositionRejected, Failure: failure, Result: c.result()}
	case judge.Failed:
		end := semel.Ending{Disposition: semel.DispositionFailed, Failure: failure}
		if c.h.keeps(v) {
			end.Result = c.result()
		}
		return end
	case judge.Aborted:
		if c.found.Declared() {
			failure.Message = c.found.Why()
		}
		return semel.Ending{Disposition: semel.DispositionAborted, Failure: failure}
	}
	failure.Message = c.found.Why()
	return semel.Ending{Disposition: semel.DispositionAbandoned, Failure: failure}
}

// runsAgain reports whether the next delivery runs after an answer with this verdict.
func (h *handler) runsAgain(v judge.Verdict) bool {
	return v == judge.Aborted || v == judge.Failed && !h.keeps(v)
}

// keeps reports whether later callers get an answer with this verdict.
func (h *handler) keeps(v judge.Verdict) bool {
	return v == judge.Completed || v == judge.Rejected || v == judge.Failed && h.onFailure == semel.ReplayFailure
}

// answer tells the caller how their call has ended, now that this is durable, or that it isn't.
// If the handler has already sent something, that is all they get. If they get a refusal
// instead of the handler's answer, answer returns its code.
func (x *exchange) answer(ans *semel.Answer, err error) said {
	c, tx := x.c, x.h.route.Tx != nil
	if c == nil { // its transaction had no time to run it
		return x.h.refuse(x.w, notCommitted())
	}
	v, gone := c.scope.word()
	if c.through {
		c.recording.Finish()
		if v != nil || gone || err != nil {
			panic(http.ErrAbortHandler) // otherwise a part, or what isn't the outcome, would look like the whole answer
		}
		return said{status: c.status}
	}
	unknown := x.end.Disposition == semel.DispositionAbandoned || x.end.Disposition == 0
	var p problem
	switch {
	case err != nil && tx && errors.Is(err, semel.ErrUnknown):
		p = unrecorded()
		p.Detail = "The database did not say whether the work was committed. Send the same request again to get the outcome."
	case err != nil && tx:
		p = notCommitted()
	case err != nil && door.Undecided(err):
		p = unrecorded()
	case err != nil:
		p = leaseLost()
	case v != nil:
		p = problem{Refusal: v.answer, effect: door.EffectUnknown}
		if v.end == semel.DispositionAborted {
			p.effect = door.EffectNone
		}
	case x.late:
		p = unavailable()
		p.Detail = "The request took too long. Everything was rolled back and nothing was done; send the same request again."
	case tx && c.failed != nil:
		p = problemOf(door.CodeAnswerTooLarge)
	case tx && c.status < 400 && unknown:
		p = notCommitted()
	case c.status < 400 && unknown:
		// Later callers won't get this success.
		p = held(x.end.Failure.Message, time.Second)
	case c.failed != nil:
		p = notKept(ans.Record, c.status)
	default:
		c.send()
		return said{status: c.status}
	}
	// The handler's headers belong to an answer that nobody gets.
	c.outer.Restore(x.w.Header())
	if !tx {
		p.reference = reference.Of(ans.Record.ID)
	}
	return x.h.refuse(c.w, p)
}

// notCommitted returns the refusal after a transaction was rolled back.
func notCommitted() problem {
	p := unavailable()
	p.Detail = "The work could not be committed. Everything was rolled back and nothing was done; send the same request again."
	return p
}

// send sends the answer to the first caller, once it is recorded or turns out not to be kept.
func (c *capture) send() {
	header := c.w.Header()
	var late http.Header
	if !c.frozen.Equal(header) {
		late = maps.Clone(header)
		c.frozen.Restore(header)
	}
	body := c.out[c.bodyAt:]
	if c.method != http.MethodHead && bodyAllowed(c.status) {
		// The length is the body's, whatever the handler has set. For short bodies the server
		// finds it out by itself.
		delete(header, "Content-Length")
		if len(body) > 2<<10 && len(header["Trailer"]) == 0 && len(header["Transfer-Encoding"]) == 0 {
			header["Content-Length"] = []string{strconv.Itoa(len(body))}
		}
	}
	origin.Own(c.w).WriteHeader(c.status)
	if len(body) > 0 {
		// A caller who is gone misses nothing: they will retry.
		_, _ = c.w.Write(body)
	}
	if late != nil {
		answer.SetTrailers(header, late)
	}
}

// forget frees what the newest run holds, if there was one, and returns the borrowed memory at
// the size that it has grown to. Nobody may need the run's answer any more.
func (x *exchange) forget() {
	c := x.c
	if c == nil {
		return
	}
	c.recording.Finish()
	if c.whole() {
		_ = c.body.Close() // another run may read the same body; serve discards it
	} else {
		c.body.Discard()
	}
	c.closed = true
	x.sc.answer, x.sc.outer, x.sc.frozen = c.out, c.outer, c.frozen
	c.out, c.outer, c.frozen = nil, nil, nil
	if x.inner.MultipartForm != nil {
		// The server does this for its own request only.
		_ = x.inner.MultipartForm.RemoveAll()
	}
}
