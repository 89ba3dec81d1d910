package semel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// Do runs one call whole: it begins, runs fn if this delivery is the one that
// executes, ends the attempt by what fn returned, and answers. Duplicates get
// the same outcome.
//
// fn runs under [Attempt.Context]: a caller that hangs up stops neither fn nor
// the recording. What fn returns ends the attempt:
//
//   - nil: completed; but held if the ledger has an effect without a result,
//     for then it is not known what the result is worth.
//   - an error marked [Rejected], [Aborted] or [Unknown]: as it says.
//   - any other error: failed, under Operation.OnFailure, if the ledger has no
//     effect without a result; otherwise unknown, and the record is held. After
//     the lease was lost such an error records nothing, see [ErrLeaseLost]. Where
//     the store kept an effect from being started, see [Attempt.StartEffect].
//   - a panic, or runtime.Goexit: as any other error; then it goes on.
//
// The result that comes with an error is kept with it.
//
// The error is nil when there is a result; otherwise see [Answer.Err]. The first
// caller can find fn's own error in it with errors.Is.
func (e *Engine) Do(ctx context.Context, call Call, fn func(ctx context.Context, x Execution) (Result, error)) (Answer, error) {
	ans, err := e.Begin(ctx, call)
	if err != nil {
		return ans, err
	}
	if ans.Decision != Execute {
		return ans, ans.Err()
	}
	a := ans.Attempt
	ans.Attempt = nil
	res, err := a.run(fn)
	ended := a.endBy(ctx, res, err)
	ans.Record = a.Record()
	if ended != nil {
		return ans, ended
	}
	if ans.Record.State == Processing {
		return ans, &Error{Code: CodeUnknown, Message: ans.Record.Held, Err: err}
	}
	if err == nil && ans.Record.Result.Tombstone {
		// Duplicates can't have it, but the one who ran it can.
		rec := *ans.Record
		rec.Result = res
		ans.Record = &rec
	}
	return ans, outcomeError(ans.Record, err)
}

// run calls fn. If fn does not return, the attempt is ended as failed or unknown
// while the panic passes.
func (a *Attempt) run(fn func(ctx context.Context, x Execution) (Result, error)) (Result, error) {
	ctx := a.Context()
	returned := false
	defer func() {
		if !returned {
			// Whoever recovers the panic can't be told of an error here. If the
			// end could not be recorded, the lease ends and policy settles it.
			_ = a.endBy(ctx, Result{}, errors.New("the handler panicked"))
		}
	}()
	res, err := fn(ctx, a)
	returned = true
	return res, err
}

// endBy ends the attempt as err says.
func (a *Attempt) endBy(ctx context.Context, res Result, err error) error {
	end := EndingOf(err, a.EffectOpen())
	switch end.Disposition {
	case DispositionCompleted:
		return a.Complete(ctx, res)
	case DispositionRejected:
		return a.Reject(ctx, end.Failure, res)
	case DispositionAborted:
		return a.Abort(ctx, end.Failure)
	case DispositionFailed:
		if lost := a.handler.lost(); lost != nil {
			// The handler was told to stop, so its error says nothing about the
			// work. What the ledger and the policy say decides when the lease ends.
			return lost
		}
		if _, ok := errors.AsType[*notStarted](err); ok && a.mayRunAgain() {
			return a.Abandon(ctx, end.Failure.Message)
		}
		return a.Fail(ctx, end.Failure, res)
	}
	return a.Hold(ctx, end.Failure.Message)
}

// EffectOpen reports whether the ledger has an effect that was started and has
// no result: then the outcome of the attempt is unknown, whatever its handler
// says about failing.
func (a *Attempt) EffectOpen() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, open := a.rec.openEffect()
	return open
}

// Do runs one call whole with a typed result, which is kept as JSON; see
// [Engine.Do]. The answer tells what this delivery got.
func Do[T any](ctx context.Context, r Runner, call Call, fn func(ctx context.Context, x Execution) (T, error)) (T, Answer, error) {
	var v T
	ans, err := r.Do(ctx, call, func(ctx context.Context, x Execution) (Result, error) {
		var err error
		if v, err = fn(ctx, x); err != nil {
			return Result{}, err
		}
		data, err := json.Marshal(v)
		if err != nil {
			return Result{}, Unknown(fmt.Errorf("the result has no JSON form: %w", err))
		}
		return Result{Data: data}, nil
	})
	if err != nil {
		var zero T
		return zero, ans, err
	}
	if ans.Decision == Execute {
		return v, ans, nil
	}
	if err := json.Unmarshal(ans.Record.Result.Data, &v); err != nil {
		return v, ans, &Error{Code: CodeResultNotKept, Message: "the recorded result does not fit its type", Err: err}
	}
	return v, ans, nil
}
