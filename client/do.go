package client

import (
	"context"
	"errors"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
)

// Do is [semel.Engine.Do] with the record at the service. fn runs in this process.
//
// Do sends the end of the execution until the service has recorded it or the lease is over. If
// ctx ends meanwhile, Do waits no longer than Options.Timeout and returns [semel.CodeUnknown],
// while sending continues.
func (c *Client) Do(ctx context.Context, call semel.Call, fn func(ctx context.Context, x semel.Execution) (semel.Result, error)) (semel.Answer, error) {
	b, err := c.Begin(ctx, call)
	ans := semel.Answer{Decision: b.Decision, Record: b.Record, RetryAfter: b.RetryAfter, Limit: b.Limit, Challenge: b.Challenge}
	if err != nil {
		return semel.Answer{Challenge: b.Challenge}, acted(err)
	}
	if ans.Decision != semel.Execute {
		return ans, acted(ans.Err())
	}
	x, stop := c.execute(ctx, &b)
	res, err := x.run(ctx, fn, stop)
	if res.Tombstone {
		err = semel.Unknown(errors.Join(err, errTombstone()))
	}
	rec, ended := x.endBy(ctx, res, err, stop)
	if ended != nil {
		return ans, acted(ended)
	}
	ans.Record = rec
	if rec.State == semel.Processing {
		return ans, acted(&semel.Error{Code: semel.CodeUnknown, Message: rec.HeldReason, Err: err})
	}
	if err == nil && rec.Result.Tombstone {
		rec.Result = res // duplicates don't get it, but the caller that ran it does
	}
	return ans, acted(withCause(ans.Err(), err))
}

// acted gives an error the action that the service's problem with its code has, unless it has one.
func acted(err error) error {
	e, ok := errors.AsType[*semel.Error](err)
	if !ok || e.Action != "" {
		return err
	}
	with := *e
	with.Action = door.ActionOf(e.Code, 0)
	return &with
}

// withCause adds the handler's own error to the error of an outcome.
func withCause(outcome, cause error) error {
	e, ok := errors.AsType[*semel.Error](outcome)
	if !ok || cause == nil {
		return outcome
	}
	return &semel.Error{Code: e.Code, Err: cause}
}

// errPanicked stands for the error of a handler that did not return.
var errPanicked = errors.New("the handler panicked")

// run calls fn. If fn panics or exits the goroutine, run abandons the execution before that
// continues.
func (x *Execution) run(ctx context.Context, fn func(ctx context.Context, x semel.Execution) (semel.Result, error), stop func()) (semel.Result, error) {
	returned := false
	defer func() {
		if !returned {
			// Whoever recovers the panic doesn't get this error. If the end could not be
			// recorded, the lease ends and policy settles the call.
			_, _ = x.endBy(ctx, semel.Result{}, errPanicked, stop)
		}
	}()
	res, err := fn(x.ctx, x)
	returned = true
	return res, err
}

// endBy stops renewing the execution and ends it according to err.
func (x *Execution) endBy(ctx context.Context, res semel.Result, err error, stop func()) (*semel.Record, error) {
	end := semel.EndingOf(err, x.effects(), x.financial)
	if end.Unmarked || end.Disposition == semel.DispositionFailed { // otherwise the handler knows better
		if lost := x.lost(); lost != nil {
			// The handler's context ended early, so its error says nothing about the work. When
			// the lease ends, the ledger and the policy decide.
			stop()
			return nil, lost
		}
		if _, ok := errors.AsType[*notStarted](err); ok && x.mayRunAgain || err == errPanicked {
			// The work itself didn't fail, or nobody knows whether it did.
			end.Disposition = semel.DispositionAbandoned
		}
	}
	type ended struct {
		rec *semel.Record
		err error
	}
	// Stop renewing, so that the end is only retried until the lease is over. If renewals got
	// through and the end never did, the call would be in flight forever.
	x.letGo()
	done := make(chan ended, 1)
	// A caller who hangs up stops neither the work nor its recording. A crash before the
	// service has recorded the end leaves a lease that ends, and policy settles the
	// attempt; a crash after it leaves nothing to do.
	go func() {
		defer stop()
		free := context.WithoutCancel(ctx)
		x.refuteUnconfirmed(free)
		q := x.c.ending(x.name, end.Disposition, end.Failure, res, x.messages())
		q.more = x.alive
		rec, err := x.c.end(free, q)
		done <- ended{rec, err}
	}()
	select {
	case e := <-done:
		return e.rec, e.err
	case <-ctx.Done():
	}
	select {
	case e := <-done:
		return e.rec, e.err
	case <-time.After(x.c.opts.Timeout):
		return nil, &semel.Error{Code: semel.CodeUnknown, Message: "the outcome is not recorded yet", Err: context.Cause(ctx)}
	}
}
