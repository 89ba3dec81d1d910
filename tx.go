package semel

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/semelhq/semel/internal/engine/callctx"
	"github.com/semelhq/semel/internal/engine/ratelimit"
	"github.com/semelhq/semel/store"
)

// BeginTx is [Engine.Begin] inside your transaction. For Execute it returns an attempt, with
// its claim as part of the transaction. If you commit without ending the attempt, you leave
// what a crashed holder leaves: a lease that runs out, and then an attempt for the policy to
// settle.
//
// While another transaction executes the call, BeginTx answers in_flight at once,
// whatever Call.Wait says, because you shouldn't keep a transaction open to wait. Until
// that transaction commits, nobody can see anything of its call. So Answer.Record has only
// the identity, and a delivery of another caller, with another payload, or through another
// door, learns of that when it comes again.
//
// After an error you can only roll the transaction back.
func (e *Engine) BeginTx(ctx context.Context, tx store.Tx, call Call) (Answer, TxAttempt, error) {
	d := delivery{engine: e, call: call, tx: &txStore{Tx: tx, engine: e}}
	if err := d.run(ctx); err != nil {
		return Answer{}, nil, err
	}
	a := d.ans.Attempt
	if a == nil {
		return d.ans, nil, nil
	}
	d.ans.Attempt = nil
	return d.ans, txAttempt{a}, nil
}

// lock locks the identity in the transaction and reads its record. It returns answered if
// another transaction has the lock.
//
// It reads the record outside the transaction: whoever had the lock before has committed,
// and an old snapshot might not show that. A read inside could also make a serializable
// transaction fail because of other keys' records. The write that follows proves that the
// record hasn't changed since.
func (d *delivery) lock(ctx context.Context) (next progress, err error) {
	if d.op.Confirmation != nil {
		return answered, &Error{Code: CodeUnsupported, Message: "a call that is to be confirmed can't begin inside a transaction"}
	}
	id := d.id
	if d.op.Sequenced {
		id = d.sequence // one number at a time
	}
	lock, err := d.tx.Lock(ctx, id, d.call.BoundTo)
	if err != nil {
		return answered, d.tx.failed(ctx, "lock", d.id, err)
	}
	if lock == store.TxLocked {
		return proceed, d.look(ctx)
	}
	if d.at, err = d.engine.read(ctx); err != nil {
		return answered, err
	}
	d.ans.Decision, d.ans.Record = InFlight, &Record{ID: d.id}
	if lock == store.TxBusy {
		return answered, nil
	}
	// The record says who owns the call, and whether others may run it. The other transaction
	// may belong to a stranger who is about to be refused.
	err = d.look(ctx)
	d.foreign = d.cur.State == absent || isForeign(&d.call, d.cur)
	if d.foreign && d.cur.State != absent {
		if r := decide(&d.op.Operation, &d.call, d.cur, d.at.now, d.engine.leaseTime(d.cur, d.at.now)); r.decision != Execute {
			d.ans.Decision = r.decision
		}
	}
	return answered, err
}

// txStore is the store of one delivery in a transaction. It reads committed records, as it
// would without a transaction, and writes in the transaction.
type txStore struct {
	store.Tx
	engine *Engine
	// whole: the engine started the transaction itself, so nobody can see the claim
	// before the outcome, and both are one write.
	whole bool
	claim *version        // kept until it is written with the outcome
	used  ratelimit.Usage // what the writes use of the quotas
}

// apply is [Engine.apply] in the transaction. The record that it returns is v.Record, and
// after any error the transaction can only be rolled back.
//
// A crash before the commit leaves nothing, whether it comes before or after this write.
// A crash after the commit leaves the last version written. If the caller commits and never
// ends the attempt, that is the claim: its lease runs out, and a sweep or delivery then
// declares the attempt abandoned.
func (s *txStore) apply(ctx context.Context, v version) (*Record, bool, error) {
	if s.whole && s.claim == nil {
		s.claim = &v
		return v.Record, true, nil
	}
	if c := s.claim; c != nil {
		// The claim was never written by itself, so this write covers both.
		v.Expect, v.Evidence, v.usage = c.Expect, slices.Concat(c.Evidence, v.Evidence), v.usage.Plus(c.usage)
	}
	s.used = s.used.Plus(v.usage)
	if err := s.put(ctx, v, "record"); err != nil {
		return nil, false, err
	}
	return v.Record, true, nil
}

// applyMark writes the mark of a sequence in the transaction, which has locked it. If the
// transaction commits, it leaves the mark together with the claim or the outcome.
func (s *txStore) applyMark(ctx context.Context, v version) error { return s.put(ctx, v, "sequence") }

// put writes one version of what in the transaction.
func (s *txStore) put(ctx context.Context, v version, what string) error {
	v.Deadline = 0 // the commit has no deadline
	applied, err := s.Apply(ctx, v.Write)
	switch {
	case err != nil:
		return s.failed(ctx, "apply", v.Record.ID, err)
	case !applied:
		return &Error{Code: CodeLeaseLost, Message: "the " + what + " was changed by another since the transaction began; roll it back"}
	}
	return nil
}

// failed reports a failed call in a transaction. An [Error] is returned as it is: it is
// the caller's mistake, not the store's.
func (s *txStore) failed(ctx context.Context, call string, id ID, err error) error {
	if _, ok := errors.AsType[*Error](err); ok {
		return err
	}
	return s.engine.storeError(ctx, call, id, err)
}

// TxAttempt is an [Attempt] inside your transaction. You do the work in the transaction,
// end the attempt by one of Complete, Reject and Fail, and commit. If you roll back, nothing
// remains, and the next delivery runs.
//
// Nobody else can see the attempt before you commit, so it has no lease to renew. It has
// no ledger either: an entry must be durable before its effect, and these would go with
// the transaction. You may call its methods concurrently, as far as the transaction
// allows it.
type TxAttempt interface {
	// ID is [Attempt.ID].
	ID() ID
	// Fence is [Attempt.Fence].
	Fence() int64
	// Number counts the attempts of this call, from 1. Attempts that were rolled back left
	// nothing and don't count.
	Number() int
	// Record is the record as the transaction sees it. Don't change it.
	Record() *Record
	// Send is [Attempt.Send].
	Send(m Message) error
	// Complete writes the result, which duplicates get once the transaction has committed.
	// After any error you can only roll back; [ErrLeaseLost] means that another engine has
	// written the record meanwhile.
	Complete(ctx context.Context, res Result) error
	// Reject ends the attempt as refused for good, and is like Complete otherwise. What you
	// have written stays in the transaction, unless you go back to a savepoint that you made
	// after you got the attempt.
	Reject(ctx context.Context, f store.Failure, res Result) error
	// Fail ends the attempt as failed; Operation.OnFailure decides what the next delivery
	// gets. Otherwise it is like Reject. To leave no trace, roll back instead.
	Fail(ctx context.Context, f store.Failure, res Result) error
	// Committed wakes waiters, because there is an outcome, and counts the call for the
	// quotas. Call it once, after the commit. Without it waiters find out by themselves within
	// a second, and the call counts for no quota.
	Committed()
}

// txAttempt is an attempt in its caller's transaction.
type txAttempt struct{ *Attempt }

func (a txAttempt) Committed() { a.committed() }

// committed reports an end that its transaction has made durable.
func (a *Attempt) committed() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended == evNone {
		return
	}
	if !a.unrecorded {
		a.tx.Committed(a.rec.ID)
		if a.tx.used != (ratelimit.Usage{}) {
			a.op.engine.quotas.charge(a.handler.Parent, a.rec, a.tx.used)
		}
	}
	a.concluded()
}

// maxTx bounds how many transactions are tried for one call if others keep rolling them
// back.
const maxTx = 12

// DoTx runs a whole call in one transaction: the claim, what fn writes and the outcome commit
// together. So effects in that database happen exactly once, if somebody delivers the call
// until it is answered. A crash leaves nothing, and the next delivery runs.
//
// Stores offer this mode by methods of their own; see package pgstore for how to use it. begin
// starts a transaction. If that is rolled back because of others, all of it runs again in
// another one, fn too; so fn must have no effects outside the database.
//
// fn's return value decides as for [Engine.Do], except that effects can be undone:
//
//   - nil: completed.
//   - an error marked [Rejected]: fn's writes are undone, and the refusal is recorded.
//   - an error marked [Aborted] or [Unknown]: everything is rolled back and nothing
//     recorded; the next delivery runs. Unknown can only be about this database, and after a
//     rollback nothing in it is unknown.
//   - one marked [Failure], and any other error if the operation is Financial: fn's writes
//     are undone, and the failure is recorded; Operation.OnFailure decides what the next
//     delivery gets.
//   - any other error: as if marked [Aborted].
//   - a panic, or runtime.Goexit: like any other error; then it continues.
//
// fn gets your context. If you hang up while fn runs, everything is rolled back, and an error
// that fn then returns isn't recorded as a failure. Once the commit is sent, hanging up changes
// nothing.
//
// An error with [CodeStoreUnavailable] or [CodeLeaseLost] means that nothing was committed. One
// with [CodeUnknown] means that the commit was sent and nobody could tell whether it happened;
// deliver the call again to find out.
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
			if tries++; tries <= maxTx && callctx.Pause(ctx, rand.N(min(time.Millisecond<<tries, 100*time.Millisecond))) {
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
		return Answer{}, d.engine.storeError(ctx, "begin", d.id, err)
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
		return Answer{}, retried(tx, d.engine.storeError(ctx, "save", d.id, err))
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
			return rolledBack{werr} // the next try sees the write in between
		}
		return retried(tx, werr)
	}
	return retried(tx, tx.Commit(context.WithoutCancel(ctx)))
}

// turn waits until another's transaction may have ended, for poll at most, because a
// rollback notifies nobody. It reports false if the engine is closed or too many wait
// already.
func (e *Engine) turn(ctx context.Context, id ID, poll time.Duration) (bool, error) {
	if !e.waiters.Admit(id.Tenant) {
		return false, nil
	}
	defer e.waiters.Dismiss(id.Tenant)
	woken, unlisten := e.waiters.Listen(id)
	defer unlisten()
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
