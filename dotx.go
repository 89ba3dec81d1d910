package semel

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/semelhq/semel/store"
)

// maxTx bounds how many transactions are tried for one call if others keep rolling them
// back.
const maxTx = 12

// DoTx runs a whole call in one transaction: the claim, what fn writes and the outcome
// commit together. So effects in that database happen exactly once, if somebody delivers
// the call until it is answered. A crash leaves nothing, and the next delivery runs.
//
// Stores offer this mode by methods of their own; see package pgstore for how to use it.
// begin starts a transaction. If that is rolled back because of others, all of it runs
// again in another one, fn too; so fn must have no effects outside the database.
//
// What fn returns decides as for [Engine.Do], except that effects can be taken back:
//
//   - nil: completed.
//   - an error marked [Rejected]: what fn wrote is taken back, and the refusal is kept.
//   - an error marked [Aborted] or [Unknown]: everything is rolled back and nothing
//     is kept; the next delivery runs. Only this database can be meant by Unknown, and
//     after a rollback nothing in it is unknown.
//   - one marked [Failure], and any other error if the operation is Financial: what fn
//     wrote is taken back, and the failure is kept; Operation.OnFailure decides what the
//     next delivery gets.
//   - any other error: as if marked [Aborted].
//   - a panic, or runtime.Goexit: as any other error; then it goes on.
//
// fn gets your context. If you hang up while fn runs, everything is rolled back, and an
// error that fn then returns isn't kept as a failure. Once the commit is sent, hanging up
// changes nothing.
//
// An error with [CodeStoreUnavailable] or [CodeLeaseLost] means that nothing was
// committed. One with [CodeUnknown] means that the commit was sent and nobody could tell
// whether it happened; deliver the call again to find out.
func (e *Engine) DoTx(ctx context.Context, call Call, begin func(ctx context.Context) (store.OwnTx, error), fn func(ctx context.Context, tx store.OwnTx) (Result, error)) (Answer, error) {
	var waited time.Duration
	began, poll := e.elapsed(), minPoll
	for tries := 1; ; {
		d := delivery{engine: e, call: call, began: began, waited: waited}
		if err := d.admit(ctx); err != nil {
			return Answer{}, err
		}
		limit := d.waitTime()
		ans, err := d.tryTx(ctx, begin, fn)
		if rolled, ok := errors.AsType[rolledBack](err); ok {
			if tries++; tries <= maxTx && pause(ctx, rand.N(min(time.Millisecond<<tries, 100*time.Millisecond))) {
				continue
			}
			return Answer{}, &Error{Code: CodeStoreUnavailable, Message: "the transaction was rolled back because of others, again and again", Err: rolled.error}
		}
		if err != nil || ans.Decision == Execute {
			return ans, err
		}
		if left := limit - waited; ans.Decision == InFlight && left > 0 {
			start := e.elapsed()
			again, err := e.turn(ctx, d.id, min(poll, left))
			if err != nil {
				return Answer{}, err
			}
			waited, poll = waited+e.elapsed()-start, min(poll*2, maxPoll)
			if again {
				continue
			}
			d.waited = waited
		}
		if err := d.answer(ctx); err != nil {
			return d.ans, err
		}
		return d.ans, d.ans.Err()
	}
}

// rolledBack is the error of a transaction after which the call may run again in another
// one.
type rolledBack struct{ error }

// tryTx runs the call in one transaction. The caller answers any decision but Execute.
func (d *delivery) tryTx(ctx context.Context, begin func(ctx context.Context) (store.OwnTx, error), fn func(ctx context.Context, tx store.OwnTx) (Result, error)) (Answer, error) {
	tx, err := begin(ctx)
	if err != nil {
		return Answer{}, d.engine.storeError("begin", d.id, err)
	}
	defer tx.Rollback(context.WithoutCancel(ctx))
	d.tx = &txStore{Tx: tx, engine: d.engine, whole: true}
	if err := d.begin(ctx); err != nil {
		return Answer{}, retried(tx, err)
	}
	if d.ans.Decision != Execute {
		return d.ans, nil
	}
	if err := tx.Save(ctx); err != nil {
		return Answer{}, retried(tx, d.engine.storeError("save", d.id, err))
	}
	a := d.ans.Attempt
	d.ans.Attempt = nil
	return d.ans.run(func() (Result, error) {
		began := d.engine.elapsed()
		defer func() { d.worked = d.engine.elapsed() - began }()
		return fn(ctx, tx)
	}, func(res Result, err error) error {
		ended := a.endTx(ctx, tx, res, err)
		if _, ok := errors.AsType[rolledBack](ended); ok {
			return ended
		}
		a.added = d.decided(ctx)
		if ended == nil {
			d.ans.Record = a.Record()
			a.committed()
		}
		return ended
	})
}

// retried marks the error as [rolledBack] if another transaction may succeed.
func retried(tx store.OwnTx, err error) error {
	if err != nil && tx.Again(err) {
		return rolledBack{err}
	}
	return err
}

// endTx ends the attempt and its transaction as the handler's error says. Nil means that
// the outcome is committed, or that the call is one that isn't recorded.
func (a *Attempt) endTx(ctx context.Context, tx store.OwnTx, res Result, err error) error {
	if err != nil && tx.Again(err) {
		return rolledBack{err}
	}
	if err != nil && ctx.Err() != nil {
		return &Error{Code: CodeStoreUnavailable, Message: "the caller hung up, and everything was rolled back", Err: err}
	}
	end := EndingOf(err, nil, a.op.Financial)
	end.Result = res
	switch end.Disposition {
	case DispositionAborted:
		return &Error{Code: CodeAborted, Err: err}
	case unended, DispositionAbandoned:
		return &Error{Code: CodeUnknown, Message: "everything was rolled back", Err: err}
	case DispositionCompleted:
	default:
		if uerr := tx.Undo(ctx); uerr != nil {
			// The connection is gone, and with it everything that fn wrote.
			return retried(tx, &Error{Code: CodeStoreUnavailable, Message: "the failure could not be recorded, and everything was rolled back", Err: errors.Join(err, uerr)})
		}
	}
	if werr := a.End(ctx, end); werr != nil {
		if errors.Is(werr, ErrLeaseLost) {
			return rolledBack{werr} // the next try sees what was written in between
		}
		return retried(tx, werr)
	}
	return retried(tx, tx.Commit(context.WithoutCancel(ctx)))
}

// turn waits until another's transaction may have ended, for poll at most, because a
// rollback notifies nobody. It reports false if the engine is closed or too many wait
// already.
func (e *Engine) turn(ctx context.Context, id ID, poll time.Duration) (bool, error) {
	woken, leave, ok := e.waiters.join(id)
	if !ok {
		return false, nil
	}
	defer leave()
	var notice <-chan struct{}
	if ws := e.extras.Watch; ws != nil {
		changed, stop := ws.Watch(ctx, id)
		defer stop()
		notice = changed
	}
	select {
	case <-woken:
	case <-notice:
	case <-time.After(poll):
	case <-ctx.Done():
		return false, ctx.Err()
	case <-e.done.Done():
		return false, nil
	}
	return true, nil
}
