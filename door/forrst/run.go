package forrst

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/door/judge"
	"github.com/semelhq/semel/internal/body"
	"github.com/semelhq/semel/store"
)

// exchange is one request and its answer, delivered by [door.Runner].
type exchange struct {
	service *Service
	w       http.ResponseWriter
	in      *http.Request
	id      string   // the request's, as far as it could be read
	r       *Request // likewise; nil before
	f       *function
	v       *Version
	out     outcome
	answer
	stranger error         // why the caller is unknown
	seen     *semel.Answer // for a call with unfit arguments; nil if it wasn't looked up
}

// recognise makes the call that a request delivers, or answers it.
func (x *exchange) recognise(ctx context.Context) (call semel.Call, err error) {
	if err := x.read(ctx); err != nil {
		return call, err
	}
	s, r := x.service, x.r
	var errs Errors
	system, ok := systemFunctions[r.Function]
	if !ok {
		x.f, x.v, errs = s.resolve(r)
	}
	if len(errs) == 0 {
		errs = s.negotiate(r, x.f)
	}
	switch {
	case len(errs) > 0:
		return call, x.with(refused(errs))
	case ok:
		return call, x.with(system(s, ctx, r))
	}
	call, err = s.call(r, x.f)
	if errs = x.f.misfits(r); err != nil || len(errs) == 0 {
		return call, err
	}
	// Arguments that don't fit leave nothing in the store. A key that was used before gets its
	// usual answer: the schema may be newer than the call (FOR-DUP.1), or the arguments may
	// have changed (FOR-CONF.1).
	if r.idempotency != nil {
		if ans, err := s.engine.Internal().Peek(ctx, call); err != nil {
			return call, err
		} else if ans.Decision != semel.Execute {
			x.seen = &ans
			return call, x.with(decided(r, &ans))
		}
	}
	return call, x.with(refused(errs))
}

// reply answers a request with the engine's answer, and adds to the event.
func (x *exchange) reply(ctx context.Context, reply *door.Reply) {
	s, r, ans := x.service, x.r, &reply.Answer
	switch {
	case errors.Is(reply.Err, errAnswered), errors.Is(reply.Err, body.ErrRefused):
	case ans.Decision == "":
		x.answer = s.undecided(ctx, r, reply.Err)
	case ans.Decision != semel.Execute:
		x.answer = decided(r, ans)
	case reply.Err != nil:
		if !door.Undecided(reply.Err) { // the runner has reported the others
			s.reportError(reply.Err)
		}
		x.answer = unrecorded(r, ans.Attempt.Record(), reply.Err)
	default:
		x.answer = x.out.ended(r, x.f, ans.Attempt.Record())
	}
	if !s.engine.Internal().Listens() {
		return
	}
	e := &reply.Event
	*e = door.EventOf(cmp.Or(x.seen, ans))
	e.Code, e.Status, e.Err, e.Attrs = x.code, x.status, x.stranger, slices.Clip(s.opts.Attrs)
	if r != nil && r.Header != nil { // otherwise it could not be read completely
		e.ID, e.Request, e.Attrs = r.record, r.ID, append(e.Attrs, attrsOf(r, &x.answer)...)
	}
}

// outcome is a function's answer, and how its attempt ends.
type outcome struct {
	answer
	end semel.Ending
}

// Run calls the function.
func (x *exchange) Run(run door.Run) semel.Ending {
	ctx, cancel := run.Context()
	defer cancel()
	result, err := x.v.Run(ctx, run.Attempt, x.r)
	x.out = outcomeOf(ctx, x.f, run.Attempt, result, err)
	switch err.(type) {
	case nil, *Error, Errors: // these say everything themselves
	default:
		x.service.reportError(err)
	}
	return x.out.end
}

// ended returns the answer to the delivery that executed, after the end of its attempt.
func (out *outcome) ended(r *Request, f *function, rec *semel.Record) answer {
	out.code = "" // any answer of the function is an outcome
	if rec.Disposition == semel.DispositionAborted {
		out.effect = door.EffectNone
	}
	again := r.idempotency != nil || f.readOnly || rec.Disposition == semel.DispositionAborted
	switch {
	case rec.State == semel.Processing && out.errors == nil:
		return processing(r, rec, time.Second) // later callers won't get its success
	case rec.State == semel.Processing:
		out.data, again = r.data(statusProcessing, rec), f.readOnly
	case f.readOnly:
	case kept(rec):
		out.data, again = r.data(statusProcessed, rec), false // trying again would only get this answer
	}
	// The outcome of a call that may run again isn't kept, so its status isn't "processed".
	if !again {
		out.retry, out.others = nil, slices.DeleteFunc(slices.Clone(out.others), isRetry)
	}
	return out.answer
}

// isRetry reports whether an extension is an upstream's retry advice.
func isRetry(x extension) bool { return shortName(x.URN) == "retry" }

// outcomeOf decides how an attempt ends when its function has returned.
func outcomeOf(ctx context.Context, f *function, a *semel.Attempt, result any, err error) outcome {
	out := outcome{end: semel.EndingOf(err, door.Effects(a), true)}
	said, sent := result.(*upstreamResult)
	if sent {
		result, out.others = said.result, said.others
	}
	if err == nil {
		raw, fault := marshal(result)
		if fault != nil {
			// The function's work is done anyway.
			fault = semel.Unknown(errors.New("the result of the function has no JSON form"))
			out.end, out.answer = semel.EndingOf(fault, nil, true), refused(one(InternalError, nil, "The function failed"))
			return out
		}
		out.end.Result = semel.Result{Data: raw}
		out.answer = answer{status: http.StatusOK, result: raw, others: out.others}
		if sent && said.found.Verdict != judge.Completed {
			out.endBy(f, said.found)
		}
		return out
	}
	errs := errorsOf(err)
	shown := errs
	if errs == nil {
		shown = one(InternalError, nil, "The function failed")
		if ctx.Err() != nil {
			shown = one(DeadlineExceeded, nil, "The function did not end in time")
		}
	}
	others := out.others
	out.answer = refused(shown)
	out.others = others
	if errs != nil {
		out.end.Failure = store.Failure{Code: string(errs[0].Code), Message: errs[0].Message}
	}
	switch {
	case sent && out.end.Unmarked:
		out.endBy(f, said.found)
	case out.end.Disposition != semel.DispositionFailed: // marked, or with an effect without a result
		if out.end.Disposition == semel.DispositionRejected {
			out.end.Result = record(&out.answer)
		}
	case !out.end.Unmarked:
		out.endBy(f, judge.Finding{Verdict: judge.Failed})
	default:
		found := judged(&judge.Rules{Own: true, Financial: f.financial}, shown, nil)
		if found.Verdict == judge.Failed && ctx.Err() != nil {
			// It failed because it had to stop. That proves nothing about its work before.
			found = judge.Finding{Status: shown[0].meaning().status, Code: string(shown[0].Code)}
		}
		out.endBy(f, found)
	}
	return out
}

// endBy ends the attempt according to what the answer proves.
func (out *outcome) endBy(f *function, found judge.Finding) {
	end := &out.end
	end.Unmarked = false // the answer speaks
	switch found.Verdict {
	case judge.Rejected:
		end.Disposition, end.Result = semel.DispositionRejected, record(&out.answer)
	case judge.Failed:
		end.Disposition = semel.DispositionFailed
		if f.onFailure == semel.ReplayFailure {
			end.Result = record(&out.answer)
		}
	case judge.Aborted:
		end.Disposition, end.Result = semel.DispositionAborted, semel.Result{}
	default:
		// A financial function isn't called again, whatever its operation says (FOR-FAIL.1).
		end.Disposition, end.Result = semel.DispositionAbandoned, semel.Result{}
		if f.financial {
			end.Disposition = 0
		}
		end.Failure.Message = found.Why()
	}
}

// record returns an answer with errors in its recorded form.
func record(a *answer) semel.Result {
	raw, _ := marshal(recordedErrors{Status: a.status, Errors: a.errors}) // both are valid
	return semel.Result{Data: raw}
}

// errorsOf finds Forrst's errors in a function's error; nil if there are none.
func errorsOf(err error) Errors {
	if many, ok := errors.AsType[Errors](err); ok && len(many) > 0 {
		return many
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return Errors{e}
	}
	return nil
}
