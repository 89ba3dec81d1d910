package semel

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// OwnTx is a [Tx] that the engine ends itself; see [Engine.DoTx].
type OwnTx interface {
	Tx
	// Save marks a point.
	Save(ctx context.Context) error
	// Undo takes back what was written since Save, but no lock.
	Undo(ctx context.Context) error
	// Commit commits. Its error means that nothing was committed, unless it has
	// [CodeUnknown]. The context has no deadline and is not cancelled.
	Commit(ctx context.Context) error
	// Rollback ends the transaction if Commit was not called.
	Rollback(ctx context.Context)
	// Again reports whether an error, of this transaction's methods or of what the
	// handler did in it, says that it was rolled back because of others, and that
	// another one that does the same may succeed.
	Again(err error) bool
}

// maxTx bounds how often a call is run again because its transaction was rolled
// back.
const maxTx = 12

// DoTx runs one call whole in a transaction: claim, what fn writes, and outcome
// commit together, so that effects in that database happen exactly once if anybody
// delivers the call until it is answered. A crash leaves nothing, and the next
// delivery runs.
//
// It is what a store offers the mode with; see package pgstore for how to use it.
// begin starts a transaction. Where that is rolled back because of others, all of it
// runs again, fn too, in another; so fn must have no effects outside.
//
// What fn returns decides as for [Engine.Do], with the difference that effects can be
// taken back:
//
//   - nil: completed.
//   - an error marked [Rejected]: what fn wrote is taken back, the refusal is kept.
//   - an error marked [Aborted] or [Unknown]: everything is rolled back and nothing
//     is kept; the next delivery runs. Unknown can speak of this database only, and
//     there nothing is left to know.
//   - any other error: what fn wrote is taken back, and the attempt is kept as
//     failed; Operation.OnFailure decides what the next delivery gets.
//   - a panic, or runtime.Goexit: as any other error; then it goes on.
//
// fn gets the context of the caller. One that hangs up while fn runs has everything
// rolled back, and an error that comes with it is nobody's failure. From the commit
// on hanging up changes nothing.
//
// An error with [CodeStoreUnavailable] or [CodeLeaseLost] means that nothing was
// committed, and one with [CodeUnknown] that the commit was sent and its fate could
// not be found out; delivering the call again finds it.
func (e *Engine) DoTx(ctx context.Context, call Call, begin func(ctx context.Context) (OwnTx, error), fn func(ctx context.Context, tx OwnTx) (Result, error)) (Answer, error) {
	var id ID
	var ans Answer
	op, err := e.admit(ctx, &call, &id)
	if err != nil {
		return ans, err
	}
	if late, err := e.refuseLateTx(ctx, op, id, &call, &ans); late || err != nil {
		if err == nil {
			err = ans.Err()
		}
		return ans, err
	}
	r := txRun{engine: e, op: op, id: &id, call: &call, begin: begin, fn: fn}
	turn := turns{engine: e, id: id, left: waitTime(op, &call)}
	defer turn.leave()
	for tries := 1; ; {
		ans, now, err := r.try(ctx)
		var again *rolledBack
		switch {
		case errors.As(err, &again):
			if tries++; tries <= maxTx && pause(ctx, pauseBefore(tries)) {
				continue
			}
			return Answer{}, &Error{Code: CodeStoreUnavailable, Message: "the transaction was rolled back because of others, again and again", Err: again.err}
		case err == nil && ans.Decision == InFlight && turn.left > 0:
			ok, err := turn.await(ctx)
			if err != nil {
				return Answer{}, err
			}
			if ok {
				continue
			}
		}
		if err != nil || ans.Decision == Execute {
			return ans, err
		}
		if err := e.answerTx(ctx, op, &call, &ans, now, turn.waited); err != nil {
			return ans, err
		}
		return ans, ans.Err()
	}
}

// rolledBack is a transaction that may be run again.
type rolledBack struct{ err error }

func (r *rolledBack) Error() string { return r.err.Error() }
func (r *rolledBack) Unwrap() error { return r.err }

// pauseBefore is a random time to wait before a try, which grows with every one.
func pauseBefore(try int) time.Duration {
	return rand.N(min(time.Millisecond<<try, 100*time.Millisecond))
}

// txRun is one call in DoTx.
type txRun struct {
	engine *Engine
	op     *operation
	id     *ID
	call   *Call
	begin  func(ctx context.Context) (OwnTx, error)
	fn     func(ctx context.Context, tx OwnTx) (Result, error)
}

// try runs the call in one transaction. Decisions other than Execute are not
// answered yet.
func (r *txRun) try(ctx context.Context) (Answer, Instant, error) {
	tx, err := r.begin(ctx)
	if err != nil {
		return Answer{}, 0, r.engine.storeError("begin", *r.id, err)
	}
	defer tx.Rollback(context.WithoutCancel(ctx))
	a, ans, now, err := r.engine.enterTx(ctx, tx, r.op, r.id, r.call)
	if a == nil || err != nil {
		return ans, now, again(tx, err)
	}
	if err := tx.Save(ctx); err != nil {
		return Answer{}, 0, again(tx, r.engine.storeError("save", *r.id, err))
	}
	res, err := r.handle(ctx, a, tx)
	ended := r.end(ctx, a, tx, res, err)
	if _, ok := errors.AsType[*rolledBack](ended); ok {
		return Answer{}, 0, ended
	}
	r.engine.decided(&ans, now, 0)
	if ended != nil {
		return ans, now, ended
	}
	ans.Record = a.Record()
	a.Committed()
	if err == nil && ans.Record.Result.Tombstone {
		// Duplicates can't have it, but the one who ran it can.
		rec := *ans.Record
		rec.Result = res
		ans.Record = &rec
	}
	return ans, now, outcomeError(ans.Record, err)
}

// again marks an error after which the transaction may be run again.
func again(tx OwnTx, err error) error {
	if err != nil && tx.Again(err) {
		return &rolledBack{err}
	}
	return err
}

// handle calls fn. If it does not return, the attempt is ended as failed while the
// panic passes.
func (r *txRun) handle(ctx context.Context, a *TxAttempt, tx OwnTx) (Result, error) {
	returned := false
	defer func() {
		if returned {
			return
		}
		// Whoever recovers the panic can't be told of an error here. If the end
		// could not be committed, nothing was, and the next delivery runs.
		ended := r.end(ctx, a, tx, Result{}, errors.New("the handler panicked"))
		r.engine.decided(&Answer{Decision: Execute, Record: &a.claim}, a.claim.StartedAt, 0)
		if ended == nil {
			a.Committed()
		}
	}()
	res, err := r.fn(ctx, tx)
	returned = true
	return res, err
}

// end ends the transaction as the handler's error says. Nil means that the outcome
// is committed, or that the call is one that is not recorded.
func (r *txRun) end(ctx context.Context, a *TxAttempt, tx OwnTx, res Result, err error) error {
	if err != nil && tx.Again(err) {
		return &rolledBack{err}
	}
	if err != nil && ctx.Err() != nil {
		return &Error{Code: CodeStoreUnavailable, Message: "the caller hung up, and everything was rolled back", Err: err}
	}
	ending, ev := EndingOf(err, false), evFail
	switch ending.Disposition {
	case DispositionCompleted:
		ev = evComplete
	case DispositionRejected:
		ev = evReject
	case DispositionAborted:
		return &Error{Code: CodeAborted, Err: err}
	case unended:
		return &Error{Code: CodeUnknown, Message: "everything was rolled back", Err: err}
	}
	var f *Failure
	if ev != evComplete {
		f = &ending.Failure
		if uerr := tx.Undo(ctx); uerr != nil {
			// The connection is gone, and with it all that fn wrote.
			return again(tx, &Error{Code: CodeStoreUnavailable, Message: "the failure could not be recorded, and everything was rolled back", Err: errors.Join(err, uerr)})
		}
	}
	if werr := a.end(ctx, ev, res, f); werr != nil {
		if errors.Is(werr, ErrLeaseLost) {
			return &rolledBack{werr} // the next try sees what has come between
		}
		return again(tx, werr)
	}
	if cerr := tx.Commit(context.WithoutCancel(ctx)); cerr != nil {
		return again(tx, cerr)
	}
	return nil
}

// turns are the moments at which a delivery that waits for another's transaction may
// try again: when it may have ended, or a while has passed.
type turns struct {
	engine *Engine
	id     ID
	left   time.Duration
	waited time.Duration

	woken  <-chan struct{}
	notice <-chan struct{}
	leaves [2]func()     // of the two above
	poll   time.Duration // zero: it has not waited yet
}

// await waits for the next such moment. It reports false when the time to wait is
// over, or too many wait already.
func (t *turns) await(ctx context.Context) (bool, error) {
	if t.woken == nil {
		woken, leave, ok := t.engine.waiters.join(t.id)
		if !ok {
			return false, nil
		}
		t.woken, t.leaves[0] = woken, leave
	}
	if t.poll == 0 {
		if ws, ok := t.engine.store.(WatchStore); ok {
			notice, stop := ws.Watch(ctx, t.id)
			t.notice, t.leaves[1] = notice, stop
		}
		t.poll = minPoll
	}
	start := time.Now()
	defer func() {
		took := time.Since(start)
		t.left, t.waited = t.left-took, t.waited+took
	}()
	// The end may have come before the waiter joined, and a transaction that is
	// rolled back tells nobody, so looking goes on beside listening.
	timer := time.NewTimer(min(t.poll, t.left))
	defer timer.Stop()
	select {
	case <-t.woken:
		t.leaves[0]()
		t.woken, t.leaves[0] = nil, nil // it is closed for good: join again
	case <-t.notice:
	case <-timer.C:
		t.poll = min(t.poll*2, maxPoll)
	case <-ctx.Done():
		return false, ctx.Err()
	case <-t.engine.done.Done():
		return false, nil
	}
	return true, nil
}

func (t *turns) leave() {
	for _, leave := range t.leaves {
		if leave != nil {
			leave()
		}
	}
}
