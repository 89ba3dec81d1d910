package forrst

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/semelhq/semel"
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
		return s.undecided(ctx, r, err)
	}
	if errs := f.misfits(r); len(errs) > 0 {
		return s.refuseMisfit(ctx, r, call, errs)
	}
	ans, err := s.engine.Begin(ctx, call)
	if err != nil {
		return s.undecided(ctx, r, err)
	}
	if ans.Decision == semel.Execute {
		return s.execute(ctx, r, f, v, ans.Attempt)
	}
	return decided(r, &ans)
}

// outcome is what a function has said, and how its attempt ends by that.
type outcome struct {
	answer
	end semel.Ending
}

// execute runs the function, makes its outcome durable, and only then answers.
func (s *Service) execute(ctx context.Context, r *Request, f *function, v *Version, a *semel.Attempt) answer {
	out, returned := outcome{}, false
	defer func() {
		if !returned { // the panic goes on as it is; nobody can be told of an error here
			_ = a.Abandon(ctx, "the function panicked")
		}
	}()
	run, cancel := context.WithTimeout(a.Context(), s.opts.Timeout)
	defer cancel()
	result, err := v.Run(run, a, r)
	out = outcomeOf(run, f, a, result, err)
	returned = true
	switch err.(type) {
	case nil, *Error, Errors: // which say all there is to say
	default:
		s.reportError(ctx, err)
	}
	// A crash before this write leaves a lease that ends and an attempt that is settled
	// by policy. A crash after it leaves nothing to do: the retry gets the outcome.
	if err := s.opts.Guard.End(ctx, a, out.end); err != nil {
		s.reportError(ctx, err)
		return unrecorded(r, a.Record(), err)
	}
	rec := a.Record()
	if rec.State == semel.Processing && out.errors == nil {
		return processing(r, rec, time.Second) // its success is not what later callers get
	}
	if rec.State.Terminal() {
		out.data = r.data(statusProcessed, rec)
	}
	if kept(rec) {
		out.retry = nil // it would only get this again
	}
	return out.answer
}

// outcomeOf decides how an attempt ends whose function has returned.
func outcomeOf(ctx context.Context, f *function, a *semel.Attempt, result any, err error) outcome {
	out := outcome{end: semel.EndingOf(err, leftOpen(a))}
	if said, ok := result.(*upstreamResult); ok {
		result, out.others = said.result, said.others
	}
	if err == nil {
		raw, fault := marshal(result)
		if fault != nil {
			// What was done can't be undone by that.
			fault = semel.Unknown(errors.New("the result of the function has no JSON form"))
			out.end, out.answer = semel.EndingOf(fault, true), refused(one(InternalError, nil, "The function failed"))
			return out
		}
		out.end.Result = semel.Result{Data: raw}
		out.answer = answer{status: http.StatusOK, result: raw, others: out.others}
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
	if out.end.Disposition != failed { // marked, or with an effect that has no result
		if out.end.Disposition == final {
			out.end.Result = record(&out.answer)
		}
		return out
	}
	switch end := endOf(shown); {
	case errors.Is(err, errSilent), end == failed && ctx.Err() != nil:
		// Told to stop, it says that it failed. That is no word about what it had done
		// until then.
		out.end.Disposition = semel.DispositionAbandoned
		if errs == nil {
			out.end.Failure.Message = "the function was told to stop"
		}
	case end == failed && f.onFailure != semel.ReplayFailure:
	default:
		out.end.Disposition = end
		if end != never {
			out.end.Result = record(&out.answer)
		}
	}
	return out
}

// record is an answer with errors as it is recorded.
func record(a *answer) semel.Result {
	raw, _ := marshal(recordedErrors{Status: a.status, Errors: a.errors}) // both are valid
	return semel.Result{Data: raw}
}

// leftOpen reports whether an effect has no result. The call of an upstream doesn't
// count: what the upstream has said is its result.
func leftOpen(a *semel.Attempt) bool {
	if !a.EffectOpen() {
		return false
	}
	for _, ef := range a.Effects() {
		if ef.State == store.EffectStarted && ef.Name != UpstreamEffect {
			return true
		}
	}
	return false
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
