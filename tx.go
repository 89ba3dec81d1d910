package semel

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// Tx is a transaction of the database that an engine's store keeps its records in,
// so that a record can be written next to the rows of the application and both
// commit or neither. A store that can do this makes them; see package pgstore.
type Tx interface {
	// Lock keeps every other transaction from locking the identity until this one
	// ends. It does not wait: false means that another has it. A second lock of
	// one identity in one transaction is an [Error] with [CodeInvalidCall], for what
	// the first has written can't be seen from outside yet.
	Lock(ctx context.Context, id ID) (bool, error)
	// Apply is [Store.Apply] as a part of the transaction: it holds once that has
	// committed, and leaves nothing when it has not. Where the transaction was
	// ended already, it is an [Error] with [CodeUnknown].
	Apply(ctx context.Context, w Write) (applied bool, err error)
	// Committed is called once the transaction has committed with a changed
	// record, so that others who watch it can be told.
	Committed(id ID)
}

// TxAttempt is the right to execute one call inside a transaction of the caller,
// who does the work in it, ends the attempt by one of Complete, Reject and Fail, and
// commits. Rolling back leaves nothing: the next delivery runs.
//
// Others can't see the attempt before it is committed, so it has no lease to renew.
// Its methods may be called concurrently, as far as the transaction allows it.
type TxAttempt struct {
	engine *Engine
	op     *operation
	tx     Tx
	// unrecorded: a read-only call, of which the store knows nothing.
	unrecorded bool
	claim      Record  // never changes
	evidence   []Entry // of the claim

	mu     sync.Mutex
	expect Revision // what the record's next version follows
	ended  *Record
	outbox []Message // what is sent if the attempt completes
}

// BeginTx is [Engine.Begin] for a transaction of the caller. For Execute it returns
// an attempt whose claim is a part of the transaction. A caller that commits without
// ending it leaves what a crashed holder leaves: a lease that ends, and an attempt
// that is then settled by policy.
//
// A call that another transaction is executing is in flight, and is answered at once
// whatever Call.Wait says, because a transaction should not be kept open to wait. Of
// such a call nothing can be seen: Answer.Record has the identity only, and another
// payload under the same key is told of the conflict when it comes again.
//
// After an error the transaction can only be rolled back.
func (e *Engine) BeginTx(ctx context.Context, tx Tx, call Call) (Answer, *TxAttempt, error) {
	var id ID
	var ans Answer
	op, err := e.admit(ctx, &call, &id)
	if err != nil {
		return ans, nil, err
	}
	if late, err := e.refuseLateTx(ctx, op, id, &call, &ans); late || err != nil {
		return ans, nil, err
	}
	a, ans, now, err := e.enterTx(ctx, tx, op, &id, &call)
	if err != nil {
		return Answer{}, nil, err
	}
	if a == nil {
		return ans, nil, e.answerTx(ctx, op, &call, &ans, now, 0)
	}
	if !a.unrecorded {
		// A crash after this write and before the commit leaves nothing, like one
		// before it. The lease counts for a caller that commits and never ends
		// the attempt: it is found abandoned then.
		applied, err := tx.Apply(ctx, Write{Record: a.claim, Expect: a.expect, Evidence: a.evidence})
		if err != nil {
			return Answer{}, nil, e.txError("apply", id, err)
		}
		if !applied {
			return Answer{}, nil, errOvertaken()
		}
		a.expect = a.claim.Revision
	}
	e.decided(&ans, now, 0)
	return ans, a, nil
}

// refuseLateTx is refuseLate for calls that are recorded.
func (e *Engine) refuseLateTx(ctx context.Context, op *operation, id ID, call *Call, ans *Answer) (bool, error) {
	if op.Class == ReadOnly {
		return false, nil
	}
	return e.refuseLate(ctx, op, id, call, ans)
}

// enterTx locks the identity in a transaction and decides. It returns an attempt
// whose claim is not written, or the decision, which was not answered yet.
//
// The record is read from outside the transaction: whoever had the lock before has
// committed, and an old snapshot might not show it. What a transaction reads of
// other keys' records would also make it fail among others that are serializable.
// That what was read still holds is proved by the write that follows it.
func (e *Engine) enterTx(ctx context.Context, tx Tx, op *operation, id *ID, call *Call) (a *TxAttempt, ans Answer, now Instant, err error) {
	if op.Confirmation != nil {
		return nil, ans, 0, &Error{Code: CodeUnsupported, Message: "a call that is to be confirmed can't begin inside a transaction"}
	}
	a = &TxAttempt{engine: e, op: op, tx: tx, unrecorded: op.Class == ReadOnly}
	cur := &none
	if !a.unrecorded {
		locked, err := tx.Lock(ctx, *id)
		if err != nil {
			return nil, ans, 0, e.txError("lock", *id, err)
		}
		if !locked {
			if now, err = e.now(ctx); err != nil {
				return nil, ans, 0, err
			}
			ans.Decision, ans.Record = InFlight, &Record{ID: *id, StartedAt: now, LeaseUntil: now.Add(op.Lease)}
			return nil, ans, now, nil
		}
		var settled bool
		if settled, cur, now, err = e.lookTx(ctx, op, id, call, &ans); settled || err != nil {
			return nil, ans, now, err
		}
	} else if now, err = e.now(ctx); err != nil {
		return nil, ans, 0, err
	}
	if err := open(&op.Operation, id, call, cur, now, e.node, &a.claim); err != nil {
		return nil, ans, now, err
	}
	if !a.unrecorded {
		if err := e.authorize(ctx, op, call, &a.claim); err != nil {
			return nil, Answer{}, now, err
		}
	}
	a.expect = cur.Revision
	ans.Decision, ans.Record = Execute, &a.claim
	if a.unrecorded {
		if err := e.witness(ctx, &op.Operation, call, &ans); err != nil {
			return nil, Answer{}, now, err
		}
		return a, ans, now, nil
	}
	a.evidence = e.stamp(&op.Operation, cur, &a.claim, ChangeClaimed).evidence
	return a, ans, now, nil
}

// lookTx reads the record of a locked identity and decides. It reports settled when
// the delivery may not execute; otherwise cur is what the claim has to follow.
func (e *Engine) lookTx(ctx context.Context, op *operation, id *ID, call *Call, ans *Answer) (settled bool, cur *Record, now Instant, err error) {
	cur = &none
	if rec, err := e.get(ctx, *id); err == nil {
		cur = &rec
	} else if err := e.storeError("get", *id, err); !errors.Is(err, ErrNotFound) {
		return false, nil, 0, err
	}
	for range maxClaims {
		if now, err = e.now(ctx); err != nil || cur.State == absent {
			return false, cur, now, err
		}
		r := decide(&op.Operation, call, cur, now, e.restored(cur, now))
		if r.decision == Execute {
			return false, cur, now, nil
		}
		ans.Decision, ans.Record = r.decision, cur
		if r.hold == "" {
			return true, cur, now, nil
		}
		// The attempt of an engine that leases was abandoned. That it is held must
		// not depend on what becomes of this transaction.
		stored, applied, err := e.holdFor(ctx, op, call, cur, r.hold, now)
		if err != nil {
			return false, nil, now, err
		}
		cur, ans.Record = stored, stored
		if applied {
			return true, cur, now, nil
		}
	}
	ans.Decision = InFlight // it changes under every look: somebody is at work on it
	if other := stranger(call, cur); other != "" {
		ans.Decision = other
	}
	return true, cur, now, nil
}

// answerTx is answer, where the record may be one that can't be seen.
func (e *Engine) answerTx(ctx context.Context, op *operation, call *Call, ans *Answer, now Instant, waited time.Duration) error {
	id, unseen := ans.Record.ID, ans.Record.Revision.IsZero()
	err := e.answer(ctx, op, call, ans, now, waited)
	if err == nil && unseen {
		ans.Record = &Record{ID: id}
	}
	return err
}

// txError reports a failed call in a transaction. One that is an [Error] already is
// the caller's mistake, not the store's.
func (e *Engine) txError(call string, id ID, err error) error {
	if _, ok := errors.AsType[*Error](err); ok {
		return err
	}
	return e.storeError(call, id, err)
}

func errOvertaken() error {
	return &Error{Code: CodeLeaseLost, Message: "the record was changed by another since the transaction began; roll it back"}
}

// ID is the identity of the call.
func (a *TxAttempt) ID() ID { return a.claim.ID }

// Fence is [Attempt.Fence].
func (a *TxAttempt) Fence() int64 { return a.claim.Fence }

// Number counts the attempts of this call, from 1. Those that were rolled back left
// nothing and are not counted.
func (a *TxAttempt) Number() int { return a.claim.Attempt }

// Record is the record as the transaction has it. It may not be changed.
func (a *TxAttempt) Record() *Record {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended != nil {
		return a.ended
	}
	return &a.claim
}

// Complete writes the result, which duplicates get once the transaction has
// committed. After any error the transaction can only be rolled back: after
// [ErrLeaseLost] because another engine has written the record meanwhile.
func (a *TxAttempt) Complete(ctx context.Context, res Result) error {
	return a.end(ctx, evComplete, res, nil)
}

// Reject ends the attempt as refused for good; otherwise as Complete. What the
// caller has written before stays in the transaction unless the caller takes it
// back, to a savepoint made after the attempt was given.
func (a *TxAttempt) Reject(ctx context.Context, f Failure, res Result) error {
	return a.end(ctx, evReject, res, &f)
}

// Fail ends the attempt as failed; Operation.OnFailure decides what the next
// delivery gets. Otherwise as Reject. To leave no trace, roll back instead.
func (a *TxAttempt) Fail(ctx context.Context, f Failure, res Result) error {
	return a.end(ctx, evFail, res, &f)
}

func (a *TxAttempt) end(ctx context.Context, ev event, res Result, f *Failure) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended != nil {
		return &Error{Code: CodeAlreadyEnded, Message: "the attempt has ended already"}
	}
	now, err := a.engine.now(ctx)
	if err != nil {
		return err
	}
	next, err := end(&a.claim, ev, now, res, f)
	if err != nil {
		return err
	}
	if ev == evComplete {
		next.send(a.outbox, now)
	}
	if !a.unrecorded {
		v := a.engine.stamp(&a.op.Operation, &a.claim, next, ChangeEnded)
		if v.expect = a.expect; v.expect != a.claim.Revision {
			// The claim was never written by itself, so this write tells of both.
			v.evidence = slices.Concat(a.evidence, v.evidence)
		}
		// A crash after this write and before the commit leaves nothing, like one
		// before it. A crash after the commit leaves the outcome and what it is
		// the outcome of.
		applied, err := a.tx.Apply(ctx, v.write())
		if err != nil {
			return a.engine.txError("apply", a.claim.ID, err)
		}
		if !applied {
			return errOvertaken()
		}
	}
	a.ended = next
	return nil
}

// Committed tells those who wait for the outcome that there is one. The caller calls
// it after the commit; without it they find out by themselves, within a second.
func (a *TxAttempt) Committed() {
	a.mu.Lock()
	rec := a.ended
	a.mu.Unlock()
	if rec == nil {
		return
	}
	if !a.unrecorded {
		a.tx.Committed(rec.ID)
	}
	a.op.latency.observe(rec.EndedAt.Sub(rec.StartedAt))
	a.engine.ended(rec, "holder", "")
}
