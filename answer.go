package semel

import (
	"cmp"
	"context"
	"time"

	"github.com/semelhq/semel/internal/engine/callctx"
	"github.com/semelhq/semel/store"
)

// refuseLate answers too_late to a call so old that the store may have forgotten it.
func (d *delivery) refuseLate(ctx context.Context) (late bool, err error) {
	if late, err = d.tooLate(ctx); late {
		d.ans.Decision, d.ans.Record = TooLate, &Record{ID: d.id}
	}
	return late, err
}

// tooLate reports whether a call without a record may have been executed and then forgotten by
// the store, because it is so old. The call or its key says when it was first sent; without
// that it is never too late.
func (d *delivery) tooLate(ctx context.Context) (bool, error) {
	e, op, call := d.engine, d.op, &d.call
	first := call.FirstSent
	if first.IsZero() {
		var ok bool
		if first, ok = KeyTime(call.Key); !ok {
			return false, nil
		}
	}
	now, err := e.now(ctx)
	if err != nil {
		return false, err
	}
	// Callers' clocks show calendar time; the store's may be ahead of it.
	sent := store.InstantOf(first).Add(e.clockState(now).Ahead)
	// A client clock that is ahead makes the call look younger than it is.
	window := max(cmp.Or(call.Window, op.Window), op.Remember)
	late := op.RefuseLate && now.Sub(sent) >= window-min(e.opts.ClockSkew, window/4)
	if !late && !e.beforeEpoch(window, sent, now) {
		return false, nil
	}
	if err := d.look(ctx); err != nil {
		return false, err
	}
	return isNew(&d.call, d.cur, now), nil
}

// beginUnrecorded gives a read-only call an attempt without a stored record (IDS-VI.3).
// Evidence usually goes into the same write as the claim. Here it is written first, on its
// own.
func (d *delivery) beginUnrecorded(ctx context.Context) (err error) {
	if d.at.now, err = d.engine.now(ctx); err != nil {
		return err
	}
	claim, err := d.open()
	if err != nil {
		return err
	}
	d.ans.Decision, d.ans.Record = Execute, claim
	d.ans.Attempt = &Attempt{op: d.op, handler: callctx.Handler{Parent: ctx}, tx: d.tx, unrecorded: true, claim: claim, rec: claim}
	if d.op.evident(EvidenceDecisions) {
		return d.witness(ctx)
	}
	return nil
}

// answer reports the decision. A delivery that doesn't execute then gets it, unless it is
// throttled as a duplicate or may not see it.
func (d *delivery) answer(ctx context.Context) error {
	if d.call.Unproved {
		d.conceal()
	}
	cur, ans := d.ans.Record, &d.ans
	switch ans.Decision {
	case Execute, Throttled: // throttled in an earlier step
		d.decided(ctx)
		return nil
	case TooLate:
		return d.tell(ctx)
	}
	limited := cur.ID
	if d.foreign {
		// The caller gets nothing from the record except when to ask again. Its limit is a
		// separate one; otherwise a stranger could use up the owner's.
		ans.Record = &Record{ID: d.id}
		limited.Principal = "\x00" + d.call.Door + "\x00" + d.call.BoundTo
	}
	if delay := d.throttled(&limited); delay > 0 && !isOwn(ctx) {
		ans.throttle(delay, LimitDuplicates)
		d.decided(ctx)
		return nil
	}
	switch ans.Decision {
	case Replay:
		cur = asOf(cur, d.at.now)
		ans.Record = cur
		if d.op.Authorize != nil {
			if err := d.authorize(ctx, cur); err != nil {
				*ans = Answer{}
				return err
			}
		}
	case InFlight, SequenceGap:
		age, lease := d.at.now.Sub(cur.StartedAt), cur.LeaseUntil.Sub(d.at.now)
		if cur.Revision.IsZero() || cur.State.Terminal() {
			// There is no lease to go by: the attempt is in another caller's open transaction,
			// or the call waits for an earlier one of its sequence that isn't running.
			age, lease = 0, d.op.Lease
		}
		ans.RetryAfter = d.op.latency.RetryAfter(age, lease)
	case Held:
		ans.RetryAfter = d.op.ReconcileEvery
		if cur.NextAt != 0 {
			ans.RetryAfter = min(max(cur.NextAt.Sub(d.at.now), minHeldRetry), d.op.ReconcileEvery)
		}
	}
	return d.tell(ctx)
}

// authorize asks whether the caller may have the outcome in rec, or begin the call.
func (d *delivery) authorize(ctx context.Context, rec *Record) error {
	if isOwn(ctx) {
		return nil
	}
	if err := d.op.Authorize(ctx, d.call, *rec); err != nil {
		return &Error{Code: CodeForbidden, Err: err}
	}
	return nil
}

// tell reports a decision that changed nothing, and records evidence of it.
func (d *delivery) tell(ctx context.Context) error {
	if d.op.evident(EvidenceDecisions) {
		if err := d.witness(ctx); err != nil {
			return err
		}
	}
	d.decided(ctx)
	return nil
}

// decided reports the decision to Events, and returns how much time the engine added.
func (d *delivery) decided(ctx context.Context) (added time.Duration) {
	added = d.engine.elapsed() - d.began - d.waited - d.worked
	if a := d.ans.Attempt; a != nil {
		a.added = added
	}
	tell := d.engine.events.Decided
	if tell == nil {
		return added
	}
	ans, rec := &d.ans, d.ans.Record
	var presented *Presented
	if ans.Decision == Conflict {
		presented = &Presented{Principal: d.call.Principal, Fingerprint: d.call.Fingerprint, Payload: d.keepable()}
		if presented.Payload != nil {
			presented.Charge = d.charge(ctx)
		}
	}
	tell(Decided{
		ID: rec.ID, Door: d.call.Door, Decision: ans.Decision, State: rec.State, Attempt: rec.Attempt, Fence: rec.Fence,
		RetryAfter: ans.RetryAfter, Limit: ans.Limit, Waited: d.waited, Added: added, At: d.at.now.Time(), Presented: presented,
	})
	return added
}

// hold replaces cur with next, and returns the record stored afterwards. next is held: the
// abandoned attempt, or one that a delivery would have made.
func (e *Engine) hold(ctx context.Context, op *operation, cur, next *Record) (*Record, bool, error) {
	// A crash before this write leaves the stored record for the next delivery or sweep
	// to find. A crash after it leaves a held record, which the reaper offers to the
	// reconciler, or an operator settles.
	return e.replace(ctx, op, cur, next, store.ChangeHeld, byReaper)
}

// hold writes the record that [delivery.held] makes, and replaces d.cur by what is stored then. It
// writes outside the delivery's transaction, if there is one: a rollback must not undo that the
// attempt is held.
func (d *delivery) hold(ctx context.Context, reason string) (applied bool, err error) {
	next, err := d.held(reason)
	if err != nil {
		return false, err
	}
	stored, applied, err := d.engine.hold(ctx, d.op, d.cur, next)
	if err == nil {
		d.cur = stored
	}
	return applied, err
}

// held makes the record that a delivery has to write instead of executing: the stored
// attempt, held. If that has ended, or is gone, it is the attempt that the delivery would have made,
// held from its beginning.
func (d *delivery) held(reason string) (*Record, error) {
	attempt := d.cur
	if d.cur.State == absent || d.cur.State.Terminal() {
		var err error
		if attempt, err = d.open(); err != nil {
			return nil, err
		}
	}
	return d.op.hold(attempt, reason, d.at.now)
}

// charge returns [Presented].Charge, which counts against the quotas of the delivery's sender.
func (d *delivery) charge(ctx context.Context) func(bytes int64) bool {
	charge, at := d.engine.quotas.charger(ctx, &d.call, d.id), d.at.now
	if charge == nil {
		return nil
	}
	return func(bytes int64) bool { return charge(bytes, at) }
}

// Ending says how to end an attempt after its handler has returned.
type Ending struct {
	// Disposition is how the attempt ends. Abandoned gives it up without an outcome;
	// zero means that the outcome is unknown, and the attempt is held.
	Disposition store.Disposition
	// Result is the answer, for completed, rejected and failed.
	Result Result
	// Failure is why the attempt isn't completed. If it is held or abandoned, only Message is
	// used, as a reason that people can read.
	Failure store.Failure
	// Unmarked is set by [EndingOf] if the handler's error has no mark. If losing the lease
	// stopped the handler, neither such an error nor a failure says anything about the work:
	// don't record it. The lease's end, the ledger and the policy decide.
	Unmarked bool
}

// event returns what the ending does to an attempt. Abandoned counts as held here: whether the
// attempt may run again depends on its record.
func (end *Ending) event() event {
	switch end.Disposition {
	case DispositionCompleted:
		return evComplete
	case DispositionRejected:
		return evReject
	case DispositionFailed:
		return evFail
	case DispositionAborted:
		return evAbort
	}
	return evHold
}

// EndingOf returns the ending that [Engine.Do] would choose for a handler's error, for
// programs that run handlers under attempts of an engine elsewhere. effects is the attempt's
// ledger. With keep, for a financial operation, an error without a mark is a failure even if
// the ledger shows that nothing was done.
//
// If losing the lease stopped the handler, see [Ending].Unmarked.
func EndingOf(err error, effects []store.EffectRecord, keep bool) Ending {
	var open, done bool
	for i := range effects {
		open = open || effects[i].State == store.EffectStarted
		done = done || effects[i].State == store.EffectConfirmed
	}
	if err == nil {
		if open {
			return Ending{Failure: store.Failure{Message: "the handler returned a result and left an effect without one"}}
		}
		return Ending{Disposition: DispositionCompleted}
	}
	v, marked := verdictOf(err)
	end := Ending{Failure: store.Failure{Message: err.Error()}, Unmarked: !marked}
	switch {
	case marked && v.disposition == DispositionRejected:
		end.Disposition, end.Failure.Code = DispositionRejected, v.code
	case open:
	case marked:
		end.Disposition = v.disposition
	case done || keep:
		end.Disposition = DispositionFailed
	default:
		end.Disposition = DispositionAborted
	}
	return end
}
