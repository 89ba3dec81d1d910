package semel

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/semelhq/semel/store"
)

// Do runs a whole call: it begins, runs fn if this delivery is the one that
// executes, ends the attempt by what fn returned, and answers. Duplicates get
// the same outcome.
//
// fn runs under [Attempt.Context]: if the caller hangs up, fn still finishes and its
// outcome is recorded. What fn returns ends the attempt:
//
//   - nil: completed; but held if the ledger has an effect without a result,
//     because fn's result can't be relied on then.
//   - an error marked [Rejected], [Aborted], [Failure], [Abandoned] or [Unknown]: as marked. But if the
//     ledger has an effect without a result, only a refusal counts; after anything else
//     the record is held.
//   - any other error, by the ledger. If no effect was completed, it is aborted: the next
//     delivery runs. If some were, or the operation is Financial, it is failed, and
//     Operation.OnFailure decides. If one has no result, the record is held. So do what
//     must not be repeated inside [Effect], or mark the error yourself. If the lease
//     was lost before, such an error records nothing, see [ErrLeaseLost]. If the store
//     prevented an effect from being started, see [Attempt.StartEffect].
//   - a panic, or runtime.Goexit: it proves nothing, so the attempt is abandoned, as by
//     [Attempt.Abandon], and held unless the ledger or the policy allows another one.
//     Then it continues.
//
// A result that fn returns with an error is recorded with it.
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
	return ans.run(func() (Result, error) { return fn(a.Context(), a) }, func(res Result, err error) error {
		ended := a.endBy(ctx, res, err)
		ans.Record = a.Record()
		return ended
	})
}

// run calls a handler and then end, which ends the attempt by what the handler returned
// and puts its outcome into the answer. If the handler does not return, the attempt is
// ended by errPanicked while the panic passes.
func (ans *Answer) run(handler func() (Result, error), end func(Result, error) error) (Answer, error) {
	returned := false
	defer func() {
		if !returned {
			// Code that recovers the panic can't get an error from here. If the end could not
			// be recorded, the lease ends and policy settles it.
			_ = end(Result{}, errPanicked)
		}
	}()
	res, err := handler()
	returned = true
	if ended := end(res, err); ended != nil {
		return *ans, ended
	}
	if ans.Record.State == Processing {
		return *ans, &Error{Code: CodeUnknown, Message: ans.Record.HeldReason, Err: err}
	}
	if err == nil && ans.Record.Result.Tombstone {
		// Duplicates can't have it, but the caller that ran it can.
		rec := *ans.Record
		rec.Result = res
		ans.Record = &rec
	}
	return *ans, outcomeError(ans.Record, err)
}

// errPanicked stands for the error of a handler that did not return.
var errPanicked = errors.New("the handler panicked")

// endBy ends the attempt as err says.
func (a *Attempt) endBy(ctx context.Context, res Result, err error) error {
	end := EndingOf(err, a.Record().Effects, a.op.Financial)
	end.Result = res
	if end.Unmarked || end.Disposition == DispositionFailed {
		if lost := a.handler.Lost(); lost != nil {
			// The engine stopped the handler, so its error says nothing about the work. When
			// the lease ends, the ledger and the policy decide.
			return lost
		}
		_, ok := errors.AsType[*notStarted](err)
		if ok && a.mayRunAgain() || err == errPanicked {
			end.Disposition = DispositionAbandoned
		}
	}
	return a.End(ctx, end)
}

// EffectOpen reports whether the ledger has an effect that was started and has
// no result. If so, the outcome of the attempt is unknown, even if its handler
// reports a failure.
func (a *Attempt) EffectOpen() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.ContainsFunc(a.rec.Effects, func(ef store.EffectRecord) bool { return ef.State == store.EffectStarted })
}

// Do runs a whole call with a typed result, recorded as JSON; see [Engine.Do]. The answer says
// what this delivery got. In a recorded result, numbers in maps and interfaces are
// [json.Number], which keeps every digit.
func Do[T any](ctx context.Context, r Doer, call Call, fn func(ctx context.Context, x Execution) (T, error)) (T, Answer, error) {
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
	if err := readResult(ans.Record.Result.Data, &v); err != nil {
		return v, ans, &Error{Code: CodeResultNotKept, Message: "the recorded result does not fit its type", Err: err}
	}
	return v, ans, nil
}

// readResult decodes a recorded result into its reader's type. It keeps numbers as written,
// because a float64, the default of encoding/json, loses digits of long ones.
func readResult(data []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	if err := dec.Decode(v); err != nil {
		return err
	}
	if _, err := dec.Token(); err != io.EOF {
		return errors.New("something follows the JSON value")
	}
	return nil
}

// Doer runs calls: an [Engine] in this process, or the client of a service. If your program
// takes a Doer, you can switch from one to the other in the one place that makes it.
type Doer interface {
	// Do is [Engine.Do].
	Do(ctx context.Context, call Call, fn func(ctx context.Context, x Execution) (Result, error)) (Answer, error)
}

// Execution is the right to execute one call, as a handler sees it: an [Attempt]
// of an engine in this process, or of a service. Its methods may be called
// concurrently.
type Execution interface {
	// ID is [Attempt.ID].
	ID() ID
	// Fence is [Attempt.Fence].
	Fence() int64
	// Number is [Attempt.Number].
	Number() int
	// Renew is [Attempt.Renew].
	Renew(ctx context.Context) error
	// StartEffect is [Attempt.StartEffect].
	StartEffect(ctx context.Context, name string) (store.EffectRecord, error)
	// SettleEffect is [Attempt.SettleEffect].
	SettleEffect(ctx context.Context, f store.EffectFinding) error
}

var (
	_ Execution = (*Attempt)(nil)
	_ Doer      = (*Engine)(nil)
)
