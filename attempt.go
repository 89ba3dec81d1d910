package semel

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/semelhq/semel/internal/engine/callctx"
	"github.com/semelhq/semel/internal/engine/renewal"
	"github.com/semelhq/semel/store"
)

// Attempt is the right to execute one call, under a lease that renews itself at
// a third of its time. End it by exactly one of Complete, Reject, Fail, Abort, Hold
// and Abandon. If the process dies before, the attempt is settled by policy.
//
// Its methods may be called concurrently.
type Attempt struct {
	op *operation

	// mu is held while the store is written to.
	mu      sync.Mutex
	rec     *Record       // as last known to be stored; never changed, only replaced
	until   time.Duration // local time by which the handler must have stopped
	pending *pendingWrite // a write after rec with an unknown result
	outbox  []Message     // messages to send if the attempt completes
	ended   event         // how the attempt ended; evNone while it runs
	tx      *txStore      // where it writes; nil: to the store itself
	// unrecorded: the call is read-only and has no record in the store.
	unrecorded bool
	// detached: this process doesn't renew the lease. The holder is another process and renews it
	// itself, or runs in a transaction and doesn't need to.
	detached bool

	// added is how much longer the delivery took because of the engine, so far.
	added time.Duration

	// lease is the attempt's entry among the leases to renew.
	lease renewal.Lease[*Attempt]

	// handler is the handler's context. It has its own lock, so that the handler can be
	// told to stop while mu is held for a store that doesn't answer.
	handler callctx.Handler

	claim *Record // as it was written first; never changed
}

// pendingWrite is a write with an unknown result: it may have arrived.
type pendingWrite struct {
	version
	ending    event  // how it ends the attempt; evNone if it doesn't
	notCalled string // an effect that it starts and that was never called
}

// leased schedules the renewal of a lease that began after the local time since. The
// caller holds a.mu, or has the only reference to a.
func (a *Attempt) leased(since time.Duration) {
	if a.detached || a.unrecorded {
		return
	}
	a.until = since + handlerTime(a.claim.Policy.Lease)
	a.op.leases.Add(&a.lease, a, since)
}

// handlerTime returns how long the handler may run under a lease: it has the last tenth to
// notice that it must stop.
func handlerTime(lease time.Duration) time.Duration { return lease - lease/10 }

// overdue reports whether the handler should have stopped by now. It reads the clock, because
// the timer that tells the handler may be late.
func (a *Attempt) overdue() bool {
	return !a.detached && !a.unrecorded && a.op.engine.elapsed() >= a.until
}

// Context returns the handler's context. It has the values of the context given to Begin, but
// neither its cancellation nor its deadline, so the handler continues if the caller hangs up.
// It is cancelled when the lease is lost, with [ErrLeaseLost] as cause, and when the attempt
// has ended.
func (a *Attempt) Context() context.Context {
	return &a.handler
}

// ID returns the identity of the call.
func (a *Attempt) ID() ID { return a.claim.ID }

// Fence returns the fencing token: a number that rises with every attempt of this call. A
// resource that remembers the highest fence it has seen can refuse a holder that was paused and
// replaced.
func (a *Attempt) Fence() int64 { return a.claim.Fence }

// Financial reports whether the operation of the call is [Operation].Financial.
func (a *Attempt) Financial() bool { return a.op.Financial }

// Number counts the attempts of this call, from 1.
func (a *Attempt) Number() int { return a.claim.Attempt }

// Record returns the record as last known to be stored. Don't change it.
func (a *Attempt) Record() *Record {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.rec
}

// End ends the attempt. When it returns nil the end is durable, and duplicates are
// answered by it. Repeating it in the same way is harmless; ending the attempt
// in another way afterwards is [CodeAlreadyEnded]. Complete, Reject, Fail, Abort, Hold
// and Abandon are End with that disposition.
//
// You can end an attempt after its lease has ended, even if the record is held by then,
// unless there is a newer attempt: the holder knows best what happened.
//
// An error with [CodeUnknown] means that the store didn't say whether it recorded the end;
// call End again to find out.
func (a *Attempt) End(ctx context.Context, end Ending) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	ev, failure := end.event(), &end.Failure
	if end.Disposition == DispositionAbandoned && mayRunAgain(a.rec) {
		ev = evAbandon
	}
	switch ev {
	case evComplete:
		failure = nil
	case evHold, evAbort, evAbandon:
		end.Result = Result{} // there is no answer
	}
	if ev == evHold && end.Failure.Message == "" {
		end.Failure.Message = "the holder does not know the outcome"
	}
	err := a.end(ctx, ev, end.Result, failure)
	if err != nil && a.ended == evNone && (a.pending == nil || a.pending.ending == evNone) {
		// The handler is done, and its end wasn't even sent. If the lease were renewed,
		// the call could never run again. So the lease may end, and the attempt is
		// settled by policy, unless End is called again before.
		a.detach()
	}
	return err
}

// Complete ends the attempt with its result, which every duplicate gets.
func (a *Attempt) Complete(ctx context.Context, res Result) error {
	return a.End(ctx, Ending{Disposition: DispositionCompleted, Result: res})
}

// Reject ends the attempt as refused for good: every duplicate gets the same
// refusal and result, whatever OnFailure says.
func (a *Attempt) Reject(ctx context.Context, f store.Failure, res Result) error {
	return a.End(ctx, Ending{Disposition: DispositionRejected, Result: res, Failure: f})
}

// Fail ends the attempt as failed; Operation.OnFailure decides what the next
// delivery gets. Use it only if you know that the work failed. If an effect may have
// happened and its result is unknown, use Hold.
func (a *Attempt) Fail(ctx context.Context, f store.Failure, res Result) error {
	return a.End(ctx, Ending{Disposition: DispositionFailed, Result: res, Failure: f})
}

// Abort ends the attempt with proof that no effect happened: the next delivery
// runs again.
func (a *Attempt) Abort(ctx context.Context, f store.Failure) error {
	return a.End(ctx, Ending{Disposition: DispositionAborted, Failure: f})
}

// Hold gives the attempt up with an unknown outcome: the call doesn't run again
// until Operation.Reconcile or [Engine.Settle] settles it. The messages that it would
// have sent are dropped, see [Settlement].Messages. The reason is for people.
func (a *Attempt) Hold(ctx context.Context, reason string) error {
	return a.End(ctx, Ending{Failure: store.Failure{Message: reason}})
}

// Abandon gives the attempt up without an outcome, as if the holder had died: it may
// run again if the ledger or Operation.OnAbandoned allows that, otherwise it is held.
// The reason is for people.
func (a *Attempt) Abandon(ctx context.Context, reason string) error {
	return a.End(ctx, Ending{Disposition: DispositionAbandoned, Failure: store.Failure{Message: reason}})
}

func (a *Attempt) mayRunAgain() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return mayRunAgain(a.rec)
}

// end makes the end of the attempt durable and then wakes its waiters. The caller holds a.mu.
func (a *Attempt) end(ctx context.Context, ev event, res Result, f *store.Failure) error {
	began := a.op.engine.elapsed()
	if a.pending != nil {
		if err := a.settlePending(ctx, a.op.engine.retrying()); err != nil {
			return err
		}
	}
	if a.ended != evNone {
		return a.endedAlready(ev, res, f)
	}
	if a.tx == nil { // a transaction's caller may hang up: that leaves nothing in doubt
		call, own := a.op.engine.storeCall(ctx) // the clock and the write share a limit
		defer own.End()
		ctx = call
	}
	// A crash before this write leaves a lease that ends and an attempt that is
	// settled by policy. A crash after it leaves nothing to do: duplicates
	// find the outcome.
	kind := store.ChangeEnded
	if ev == evHold {
		kind = store.ChangeHeld
	}
	err := a.write(ctx, kind, func(cur *Record, at reading) (*Record, error) {
		again := ev == evAbandon || ev == evFail && a.op.OnFailure == RetryFailure
		if again && a.fromBackup(cur, at) {
			return nil, errRestored // it may have had effects: when the lease ends, the call is held
		}
		if ev == evHold {
			return a.op.hold(cur, f.Message, at.now)
		}
		next, err := end(cur, ev, at.now, res, f)
		if err != nil {
			return nil, err
		}
		switch {
		case ev == evComplete && len(a.outbox) > 0:
			addOutbox(next, a.outbox, at.now)
		case ev == evAbort:
			next = buried(next)
		}
		return next, nil
	})
	if err != nil {
		if a.pending != nil {
			a.pending.ending = ev
		}
		return err
	}
	a.added += a.op.engine.elapsed() - began
	if a.ended = ev; a.tx == nil { // an end in a transaction is announced after the commit
		a.concluded()
	}
	return nil
}

// endedAlready compares a repeated end with the first.
func (a *Attempt) endedAlready(ev event, res Result, f *store.Failure) error {
	same := a.ended == ev && (a.rec.Result.Tombstone || bytes.Equal(a.rec.Result.Data, res.Data))
	if ev != evHold && same {
		same = sameFailure(a.rec.Failure, f)
	}
	if same {
		return nil
	}
	return &Error{Code: CodeAlreadyEnded, Message: "the attempt has ended already, in another way"}
}

// concluded cleans up after an attempt with a durable end, and reports it.
func (a *Attempt) concluded() {
	if a.ended != evHold {
		a.op.latency.Observe(a.rec.EndedAt.Sub(a.rec.StartedAt))
	}
	a.op.leases.Remove(&a.lease)
	a.handler.Stop(nil)
	a.op.engine.ended(a.rec, byHolder, a.added)
}

// write makes change(a.rec) durable as the successor of a.rec. The caller holds
// a.mu. It resolves a write with an unknown result first, because the next write must
// follow the version that is stored.
func (a *Attempt) write(ctx context.Context, kind store.Change, change changeFunc) error {
	by := a.op.engine.retrying()
	if a.tx != nil {
		by = sending{a.op.engine.read, a.tx.apply}
	}
	return a.writeBy(ctx, by, kind, change)
}

// changeFunc makes the successor of a record at a clock reading.
type changeFunc func(cur *Record, at reading) (*Record, error)

// sending is how an attempt calls the store: with retries, or once.
type sending struct {
	read  func(ctx context.Context) (reading, error)
	apply func(ctx context.Context, v version) (*Record, bool, error)
}

func (e *Engine) retrying() sending { return sending{e.retryingRead, e.apply} }

func (e *Engine) once() sending {
	return sending{e.read, func(ctx context.Context, v version) (*Record, bool, error) { return e.applyOnce(ctx, &v, 1) }}
}

func (a *Attempt) writeBy(ctx context.Context, by sending, kind store.Change, change changeFunc) error {
	if a.unrecorded {
		at, err := by.read(ctx)
		if err != nil {
			return err
		}
		next, err := change(a.rec, at)
		if err == nil {
			a.rec = next
		}
		return err
	}
	if a.pending != nil {
		if err := a.settlePending(ctx, by); err != nil {
			return err
		}
	}
	if a.ended != evNone {
		return &Error{Code: CodeAlreadyEnded, Message: "the attempt has ended"}
	}
	for range maxClaims {
		at, err := by.read(ctx)
		if err != nil && a.tx == nil {
			err = &Error{Code: CodeUnknown, Message: "the store did not answer, and nothing was written", Err: err}
		}
		if err != nil {
			return err
		}
		next, err := change(a.rec, at)
		if err != nil {
			return err
		}
		v := a.op.engine.newVersion(&a.op.Operation, a.rec, next, kind)
		cur, applied, err := by.apply(ctx, v)
		switch {
		case err != nil && a.tx != nil:
			return err // nothing is unknown: the transaction can only be rolled back
		case err != nil && !errors.Is(err, store.ErrNotApplied):
			a.pending = &pendingWrite{version: v}
			fallthrough
		case err != nil:
			return errWriteUnknown(err)
		}
		if applied || followed(next, cur) {
			a.rec = next
			return nil
		}
		if err := a.rebase(cur); err != nil {
			return err
		}
	}
	return errTooFast
}

func errWriteUnknown(err error) error {
	return &Error{Code: CodeUnknown, Message: "the store did not say whether the write was kept", Err: err}
}

// settlePending finds out whether the pending write arrived. There must be one.
func (a *Attempt) settlePending(ctx context.Context, by sending) error {
	d := a.pending
	cur, applied, err := by.apply(ctx, d.version)
	if err != nil {
		return errWriteUnknown(err)
	}
	a.pending = nil
	if applied || followed(d.Record, cur) {
		a.rec = d.Record
		if d.ending != evNone {
			if a.ended = d.ending; a.tx == nil {
				a.concluded()
			}
			return nil
		}
	} else if err := a.rebase(cur); err != nil {
		return err
	}
	name := d.notCalled
	if name == "" || effectIndex(a.rec, name) < 0 {
		return nil
	}
	return a.revertEffect(ctx, by, name)
}

// revertEffect records in the ledger that a started effect wasn't called and won't be.
// The caller holds a.mu.
func (a *Attempt) revertEffect(ctx context.Context, by sending, name string) error {
	// A crash before this write leaves the effect started, and the attempt is held.
	// A crash after it leaves nothing to settle.
	return a.writeBy(ctx, by, store.ChangeEffect, func(cur *Record, at reading) (*Record, error) {
		return changeEffect(cur, name, at.now, func(ef *store.EffectRecord) {
			if ef.State == store.EffectStarted {
				ef.State = store.EffectRefuted
			}
		})
	})
}

// followed reports whether an end was written although a newer version of the record is stored,
// because something happened later, such as a settled message or a further attempt. The newer
// version then has the same end, to the nanosecond.
func followed(end, cur *Record) bool {
	if !end.State.Terminal() {
		return false
	}
	if cur.Fence == end.Fence {
		return cur.State == end.State && cur.Disposition == end.Disposition && cur.EndedAt == end.EndedAt &&
			(cur.OnlyNamed() || cur.Result.Tombstone == end.Result.Tombstone && bytes.Equal(cur.Result.Data, end.Result.Data) && sameFailure(cur.Failure, end.Failure)) &&
			slices.EqualFunc(cur.Outbox, end.Outbox, func(a, b Message) bool { return a.ID == b.ID })
	}
	return slices.ContainsFunc(cur.Earlier, func(at store.AttemptRecord) bool {
		return at.Fence == end.Fence && at.Disposition == end.Disposition && at.EndedAt == end.EndedAt && (at.Failure == nil || sameFailure(at.Failure, end.Failure))
	})
}

// rebase accepts a record that was changed elsewhere if this attempt is still the
// newest and not terminal: it was only declared held. Otherwise the lease is lost.
func (a *Attempt) rebase(cur *Record) error {
	if cur.Fence == a.rec.Fence && cur.State == Processing {
		a.rec = cur
		return nil
	}
	err := &Error{Code: CodeLeaseLost, Message: "the record was settled or taken over by another"}
	a.lose(err)
	return err
}

// lose tells the handler to stop. It may be called with or without a.mu.
func (a *Attempt) lose(err error) {
	if !a.handler.Stop(err) {
		return
	}
	if f := a.op.engine.events.LeaseLost; f != nil {
		f(LeaseLost{ID: a.claim.ID, Attempt: a.claim.Attempt, Fence: a.claim.Fence, Err: err})
	}
}
