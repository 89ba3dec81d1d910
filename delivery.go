package semel

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/semelhq/semel/internal/engine/callctx"
	"github.com/semelhq/semel/store"
)

// maxClaims bounds how often one delivery tries to claim a record that changes
// under it.
const maxClaims = 16

// Begin decides what a delivery gets. For Execute the answer carries an [Attempt] with a
// durable claim: do the work with Attempt.Context, then end the attempt. For any other
// decision execute nothing.
//
// An error means that the call is invalid, that the caller may not see the answer, or
// that the store is unavailable. Execute nothing then either.
func (e *Engine) Begin(ctx context.Context, call Call) (Answer, error) {
	d := delivery{engine: e, call: call}
	err := d.run(ctx)
	return d.ans, err
}

// delivery is one delivery of a call on its way to its answer. Set engine and call, and start
// with admit.
type delivery struct {
	engine *Engine
	op     *operation
	call   Call
	id     ID
	// sequence is the identity of the sequence of a numbered call, and position where it stands.
	sequence ID
	position position
	tx       *txStore // where it writes; nil: to the store itself

	cur    *Record // the stored record, as last seen; none if there is none, or before look
	looked bool    // whether cur was read
	// foreign: the record in the way belongs to another caller or door, and the answer must
	// not reveal it.
	foreign bool
	at      reading       // when cur was judged
	began   time.Duration // when it arrived, by the engine's clock
	trace   string        // of the attempt that it may begin, see Events.Trace
	waited  time.Duration // for another's outcome
	worked  time.Duration // how long the handler took, in a transaction
	proof   confirming
	ans     Answer
}

// progress says what follows a step of a delivery.
type progress uint8

const (
	proceed   progress = iota // with the next step
	startOver                 // with the first step: the record has changed
	answered                  // the delivery has its answer
)

// run admits the call, decides what the delivery gets and answers.
func (d *delivery) run(ctx context.Context) error {
	if err := d.admit(ctx); err != nil {
		return err
	}
	if err := d.begin(ctx); err != nil {
		return err
	}
	return d.answer(ctx)
}

// admit checks the call and finds its operation and identity.
func (d *delivery) admit(ctx context.Context) error {
	e, call := d.engine, &d.call
	if err := ctx.Err(); err != nil {
		return err
	}
	if e.done.Err() != nil {
		return &Error{Code: CodeClosed}
	}
	op, ok := (*e.ops.Load())[call.Operation]
	if !ok {
		return &Error{Code: CodeUnknownOperation, Message: "operation " + call.Operation + " is not registered"}
	}
	d.op, d.id, d.sequence, d.cur = op, call.ID(op.Share), call.sequence(op.Share), &none
	if d.began == 0 {
		d.began = e.elapsed()
	}
	if err := d.id.Validate(); err != nil {
		return err
	}
	if err := call.validateNames(); err != nil {
		return err
	}
	if op.Sequenced || call.Sequence != 0 {
		if err := call.validateSequence(&op.Operation); err != nil {
			return err
		}
	}
	if call.Window != 0 {
		if why := op.refuseWindow(call.Window); why != "" {
			return &Error{Code: CodeInvalidCall, Message: "the call's window of " + why}
		}
	}
	if call.Attributes != nil {
		if err := call.Attributes.Validate(); err != nil {
			return err
		}
		call.Attributes = maps.Clone(call.Attributes) // the record keeps them
	}
	if e.events.Trace != nil {
		d.trace = e.events.Trace(ctx)
	}
	e.reportUnswept()
	return nil
}

// begin decides what the delivery gets, and writes the claim if it executes. It starts
// over while the record changes under it. answer then reports the decision.
func (d *delivery) begin(ctx context.Context) error {
	if d.op.Class == ReadOnly {
		return d.beginUnrecorded(ctx)
	}
	if d.op.RefuseLate || d.engine.epoch.Load() != 0 {
		if late, err := d.refuseLate(ctx); late || err != nil {
			return err
		}
	}
	if d.tx != nil {
		if next, err := d.lock(ctx); next == answered || err != nil {
			return err
		}
	}
	// Most deliveries only read the clock, write the claim, and read the clock again if there
	// is a record. These calls share a time limit.
	calls := ctx
	if d.tx == nil {
		var own *callctx.Call
		calls, own = d.engine.storeCall(ctx)
		defer own.End()
	}
	if d.op.Confirmation != nil || d.op.Sequenced || d.engine.extras.Local {
		// A token or a number is compared with the record, so the record is read first.
		if err := d.look(calls); err != nil {
			return err
		}
	}
	for n := range maxClaims {
		next, err := d.try(ctx, calls)
		if next == answered || err != nil {
			return err
		}
		if n > 0 {
			calls = ctx
		}
	}
	// The record changed under every try, so somebody is at work on it.
	d.foreign = isForeign(&d.call, d.cur)
	d.ans = Answer{Decision: InFlight, Record: d.cur}
	return nil
}

// try goes through the steps once: it judges the record and, if nothing prevents it, writes the
// claim. calls is the context of the first calls to the store.
func (d *delivery) try(ctx, calls context.Context) (next progress, err error) {
	if d.at, err = d.engine.read(calls); err != nil {
		return startOver, err
	}
	if d.op.Sequenced && d.strayed() {
		d.id = d.call.ID(d.op.Share)
		return startOver, d.look(ctx)
	}
	if d.cur.State != absent {
		if next, err := d.decide(ctx); next != proceed || err != nil {
			return next, err
		}
		calls = ctx // the delivery may have waited longer than one call may take
	}
	if d.op.Sequenced {
		if next, err := d.order(ctx); next != proceed || err != nil {
			return next, err
		}
		calls = ctx
	}
	claim, err := d.open()
	if err != nil {
		return startOver, err
	}
	if d.op.Authorize != nil {
		if err := d.authorize(ctx, claim); err != nil {
			if !d.looked { // a caller who may not begin the call may still get its outcome
				if lerr := d.look(calls); lerr != nil || d.cur.State != absent {
					return startOver, lerr
				}
			}
			return startOver, err
		}
	}
	if d.engine.quotas.some {
		if next, err := d.checkQuota(ctx, calls, claim); next != proceed || err != nil {
			return next, err
		}
	}
	if d.cur.State == absent && d.op.guarded() {
		if next, err := d.missing(ctx, calls); next != proceed || err != nil {
			return next, err
		}
	}
	if d.op.Confirmation != nil {
		if next, err := d.confirm(ctx, claim); next != proceed || err != nil {
			return next, err
		}
	}
	if d.call.turn.number != 0 {
		if next, err := d.myTurn(ctx, calls); next != proceed || err != nil {
			return next, err
		}
	}
	return d.claim(ctx, calls, claim)
}

// look reads the stored record.
func (d *delivery) look(ctx context.Context) error {
	rec, err := d.engine.getIfAny(ctx, d.id)
	if err == nil {
		d.cur, d.looked = rec, true
	}
	return err
}

// decide handles the record that stands in the way of a claim. If the delivery may proceed, it
// replaces d.cur, as judged at d.at.
func (d *delivery) decide(ctx context.Context) (next progress, err error) {
	for n := range maxClaims {
		if n > 0 { // the record isn't judged yet
			if d.at, err = d.engine.read(ctx); err != nil {
				return startOver, err
			}
		}
		switch {
		case d.op.Sequenced && d.strayed():
			return startOver, nil
		case d.cur.State == absent:
			return proceed, nil // it is gone by now
		case d.cur.RefusedUntil > d.at.now:
			if err := d.ownRefusal(ctx); err != nil {
				return startOver, err
			}
		}
		r := d.rule()
		if d.op.Sequenced && r.decision == Conflict && d.cur.State == Processing {
			// A claim of a number that the mark doesn't name has not begun. It may be given back,
			// so a caller with another payload is not told that its key was used.
			if named, err := d.markNames(ctx); err != nil {
				return startOver, err
			} else if !named {
				r.decision = InFlight
			}
		}
		switch {
		case r.decision == Execute:
			return proceed, nil
		case r.hold != "":
			if applied, err := d.hold(ctx, r.hold); err != nil {
				return startOver, err
			} else if !applied { // somebody else was faster: look again
				continue
			}
		case r.decision == InFlight && d.cur.BoundTo != d.call.BoundTo && d.takeTurn(ctx):
			if err := d.look(ctx); err != nil {
				return startOver, err
			}
			continue
		case r.decision == InFlight && d.waitTime() > d.waited:
			changed, err := d.wait(ctx, watchKey{id: d.id, change: d.cur.State != Processing, seen: d.cur.Revision})
			if err != nil {
				return startOver, err
			}
			if changed != nil {
				d.cur = changed
				continue
			}
		}
		d.answerBy(r.decision)
		return answered, nil
	}
	return startOver, nil // the record has changed again, and isn't judged yet
}

// answerBy answers with the decision about the record that the delivery has read.
func (d *delivery) answerBy(decision Decision) {
	d.foreign = isForeign(&d.call, d.cur)
	d.ans.Decision, d.ans.Record = decision, d.cur
	if d.cur.Mark != nil {
		d.ans.Record = &Record{ID: d.id, Sequence: d.cur.Mark.Newest}
	}
}

// rule decides what the delivery gets for the record that it has read.
func (d *delivery) rule() ruling {
	e, now := d.engine, d.at.now
	r := decide(&d.op.Operation, &d.call, d.cur, now, e.leaseTime(d.cur, now))
	if e.epoch.Load() != 0 && e.restored(d.cur, now) {
		r = decideRestored(r, &d.call, d.cur, now)
	}
	return r
}

// wait waits for the event that key names and returns the record stored then, or nil if the
// event hasn't come. Read the clock before you judge that record.
func (d *delivery) wait(ctx context.Context, key watchKey) (*Record, error) {
	start := d.engine.elapsed()
	changed, err := d.engine.await(ctx, key, d.waitTime()-d.waited)
	d.waited += d.engine.elapsed() - start
	return changed, err
}

// waitTime returns how long the delivery waits for an outcome.
func (d *delivery) waitTime() time.Duration {
	switch {
	case d.tx != nil: // don't keep a transaction open to wait
		return 0
	case d.call.Wait > 0:
		return min(d.call.Wait, d.op.MaxWait)
	case d.op.InFlight == WaitInFlight:
		return d.op.MaxWait
	}
	return 0
}

// checkQuota refuses a new call of a caller who is over a quota. A further attempt of a call, and
// Semel's own calls, have none.
func (d *delivery) checkQuota(ctx, calls context.Context, claim *Record) (progress, error) {
	if isOwn(ctx) || isForSemel(d.id) || d.cur.Origin == claim.Origin {
		return proceed, nil
	}
	delay, by := d.engine.quotas.wait(ctx, claim)
	switch {
	case delay == 0:
		return proceed, nil
	case !d.looked: // duplicates are answered even if their caller is over a quota
		return startOver, d.look(calls)
	}
	d.ans.throttle(delay, by)
	d.ans.Record = &Record{ID: d.id}
	return answered, nil
}

// claim writes the claim of an attempt, and hands out the right to execute.
func (d *delivery) claim(ctx, calls context.Context, claim *Record) (progress, error) {
	if d.cur.State != absent {
		if err := d.setAside(ctx); err != nil {
			return startOver, err
		}
	}
	v := d.engine.newVersion(&d.op.Operation, d.cur, claim, store.ChangeClaimed)
	v.Deadline = d.at.now.Add(min(d.op.Lease, 2*d.engine.opts.StoreTimeout)) // nobody waits longer
	stored, applied, err := d.applyClaim(ctx, calls, &v)
	if err != nil {
		return startOver, err
	}
	if !applied {
		d.cur, d.looked = stored, true
		return startOver, nil
	}
	a := &Attempt{op: d.op, handler: callctx.Handler{Parent: ctx}, rec: stored, tx: d.tx, detached: d.tx != nil, claim: claim}
	a.leased(d.at.elapsed)
	d.ans.Decision, d.ans.Record, d.ans.Attempt = Execute, stored, a
	return answered, nil
}

// applyClaim writes a claim, to the store or in the delivery's transaction.
func (d *delivery) applyClaim(ctx, calls context.Context, v *version) (stored *Record, applied bool, err error) {
	if d.tx != nil {
		if d.op.Sequenced {
			if _, err := d.moveMark(ctx, v); err != nil {
				return nil, false, err
			}
		}
		return d.tx.apply(ctx, *v)
	}
	// A crash before this write leaves nothing. A crash after it leaves a
	// claim without a holder: when its lease ends, the next delivery or
	// the reaper settles it as an abandoned attempt.
	stored, applied, err = d.engine.send(calls, v, false)
	switch {
	case err != nil && !errors.Is(err, store.ErrNotApplied):
		d.engine.releaseClaim(d.op, v)
		return stored, applied, err
	case err != nil:
		return stored, applied, err
	case applied && d.op.Sequenced:
		if applied, err = d.moveMark(ctx, v); err != nil {
			d.engine.releaseClaim(d.op, v)
			return nil, false, err
		}
	}
	switch {
	case !applied:
		return d.takeBack(ctx, stored, v)
	case d.engine.elapsed()-d.at.elapsed >= d.op.Lease/3: // it would be due for renewal
		return d.freshen(ctx, v)
	}
	return stored, true, nil
}

// takeBack handles a claim that is no longer stored, and that no handler got. If its lease was
// over when others first saw it, they have declared it held. Then takeBack aborts it, and the
// delivery claims again. It returns the stored record.
func (d *delivery) takeBack(ctx context.Context, stored *Record, claim *version, renewals ...store.Revision) (*Record, bool, error) {
	claims := append([]store.Revision{claim.Record.Revision}, renewals...)
	if !unused(stored, claims) {
		return stored, false, nil // replaced by the reaper or another delivery
	}
	stored, _, err := d.engine.release(ctx, d.op, stored)
	if err != nil {
		d.engine.releaseClaim(d.op, claim, renewals...)
	}
	return stored, false, err
}

// freshen renews the lease of a stored claim that took long to arrive, so that no handler
// starts under a lease that is over or nearly so. d.at is the time of the claim, and later the
// last time its lease began. After an error it releases the claim.
func (d *delivery) freshen(ctx context.Context, claim *version) (*Record, bool, error) {
	e, op := d.engine, d.op
	rec := claim.Record
	renewals := []store.Revision{}
	giveUp := func(err error) (*Record, bool, error) {
		e.releaseClaim(op, claim, renewals...)
		return nil, false, err
	}
	for range maxClaims {
		var err error
		if d.at, err = e.read(ctx); err != nil {
			return giveUp(err)
		}
		next, err := extend(rec, evRenew, d.at.now)
		if err != nil {
			return giveUp(err)
		}
		v := e.newVersion(&op.Operation, rec, next, store.ChangePostponed)
		v.Deadline = next.LeaseUntil
		renewals = append(renewals, next.Revision)
		// A crash before or after this write leaves a claim without a holder, as in
		// applyClaim.
		stored, applied, err := e.send(ctx, &v, false)
		switch {
		case err != nil:
			return giveUp(err)
		case !applied:
			return d.takeBack(ctx, stored, claim, renewals...)
		case e.elapsed()-d.at.elapsed < op.Lease/3:
			return next, true, nil
		}
		rec = next
	}
	return giveUp(&Error{Code: CodeStoreUnavailable, Message: "the store takes longer than a third of the lease for each write"})
}

// none stands for a record that doesn't exist. It is never changed.
var none Record
