package forrst

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/door/judge"
	"github.com/semelhq/semel/store"
)

// serve answers a request whose envelope is in order.
func (s *Service) serve(ctx context.Context, r *Request) answer {
	if system, ok := systemFunctions[r.Function]; ok {
		if errs := s.negotiate(r, nil); len(errs) > 0 {
			return refused(errs)
		}
		return system(s, ctx, r)
	}
	f, v, errs := s.resolve(r)
	if len(errs) == 0 {
		errs = s.negotiate(r, f)
	}
	if len(errs) > 0 {
		return refused(errs)
	}
	call, err := s.call(r, f)
	if err != nil {
		return s.undecided(r, err)
	}
	if errs := f.misfits(r); len(errs) > 0 {
		return s.refuseMisfit(ctx, r, call, errs)
	}
	w := work{service: s, r: r, f: f, v: v}
	ans, err := s.opts.Runner.Do(ctx, call, door.Work{Handler: &w, Timeout: s.opts.Timeout})
	switch {
	case ans.Decision == "":
		return s.undecided(r, err)
	case ans.Decision != semel.Execute:
		return decided(r, &ans)
	case err != nil:
		if !door.Undecided(err) { // which the runner has reported
			s.reportError(err)
		}
		a := unrecorded(r, ans.Attempt.Record(), err)
		a.ans = &ans
		return a
	}
	a := w.out.ended(r, f, ans.Attempt.Record())
	a.ans = &ans
	return a
}

// outcome is what a function has said, and how its attempt ends by that.
type outcome struct {
	answer
	end semel.Ending
}

// work is a call of a function, as [door.Runner] runs it.
type work struct {
	service *Service
	r       *Request
	f       *function
	v       *Version
	out     outcome
}

// Run calls the function.
func (w *work) Run(x door.Run) semel.Ending {
	ctx, cancel := x.Context()
	defer cancel()
	result, err := w.v.Run(ctx, x.Attempt, w.r)
	w.out = outcomeOf(ctx, w.f, x.Attempt, result, err)
	switch err.(type) {
	case nil, *Error, Errors: // which say all there is to say
	default:
		w.service.reportError(err)
	}
	return w.out.end
}

// ended is the answer to the delivery that has executed, whose attempt has ended.
func (out *outcome) ended(r *Request, f *function, rec *semel.Record) answer {
	out.code = "" // whatever the function says is an outcome
	if rec.Disposition == semel.DispositionAborted {
		out.effect = door.EffectNone
	}
	again := r.idempotency != nil || f.readOnly || rec.Disposition == semel.DispositionAborted
	switch {
	case rec.State == semel.Processing && out.errors == nil:
		return processing(r, rec, time.Second) // its success is not what later callers get
	case rec.State == semel.Processing:
		out.data, again = r.data(statusProcessing, rec), f.readOnly
	case f.readOnly:
	case kept(rec):
		out.data, again = r.data(statusProcessed, rec), false // it would only get this again
	}
	// What may run again is not kept, so nothing is said to be processed.
	if !again {
		out.retry, out.others = nil, slices.DeleteFunc(slices.Clone(out.others), isRetry)
	}
	return out.answer
}

// isRetry reports whether an extension is that of an upstream's advice.
func isRetry(x extension) bool { return shortName(x.URN) == "retry" }

// outcomeOf decides how an attempt ends whose function has returned.
func outcomeOf(ctx context.Context, f *function, a *semel.Attempt, result any, err error) outcome {
	out := outcome{end: semel.EndingOf(err, door.Effects(a), true)}
	said, sent := result.(*upstreamResult)
	if sent {
		result, out.others = said.result, said.others
	}
	if err == nil {
		raw, fault := marshal(result)
		if fault != nil {
			// What was done can't be undone by that.
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
	case out.end.Disposition != semel.DispositionFailed: // marked, or with an effect that has no result
		if out.end.Disposition == semel.DispositionRejected {
			out.end.Result = record(&out.answer)
		}
	case !out.end.Unmarked:
		out.endBy(f, judge.Finding{Verdict: judge.Failed})
	default:
		found := judged(&judge.Rules{Own: true, Financial: f.financial}, shown, nil)
		if found.Verdict == judge.Failed && ctx.Err() != nil {
			// Told to stop, it says that it failed. That is no word about what it had
			// done until then.
			found = judge.Finding{Status: shown[0].meaning().status, Code: string(shown[0].Code)}
		}
		out.endBy(f, found)
	}
	return out
}

// endBy ends the attempt by what the answer proves.
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
		// A financial function isn't called again, whatever else its operation says
		// (FOR-FAIL.1).
		end.Disposition, end.Result = semel.DispositionAbandoned, semel.Result{}
		if f.financial {
			end.Disposition = 0
		}
		end.Failure.Message = found.Why()
	}
}

// record is an answer with errors as it is recorded.
func record(a *answer) semel.Result {
	raw, _ := marshal(recordedErrors{Status: a.status, Errors: a.errors}) // both are valid
	return semel.Result{Data: raw}
}

// errorsOf finds what a function says in an error; nil if it is none of Forrst's.
func errorsOf(err error) Errors {
	if many, ok := errors.AsType[Errors](err); ok && len(many) > 0 {
		return many
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return Errors{e}
	}
	return nil
}
