package semel

import (
	"context"
	"strconv"
	"strings"

	"github.com/semelhq/semel/store"
)

// Numbered calls. Each number of a sequence is a record of its own, [store.ID.Numbered], and is
// decided, ended, settled, compensated and purged like any other. Beside the numbers stands the
// mark of the sequence: which number began last. It only orders the numbers, and holds no
// outcome.
//
// A number begins by two writes, its claim and then the mark, and its handler starts when both
// are durable. Every execution moves the mark, a further attempt too, so of two numbers that
// begin at the same time one finds the mark changed and gives its claim back. Whoever moves the
// mark has read the record of the number that began last, whose claim is older than the mark.

// validateSequence rejects a number where the operation has none, and the reverse.
func (c *Call) validateSequence(op *Operation) error {
	switch {
	case c.Sequence == 0 && op.Sequenced:
		return &Error{Code: CodeInvalidCall, Message: "operation " + op.Name + " is sequenced, and the call has no number; numbers begin with 1"}
	case c.Sequence != 0 && !op.Sequenced:
		return &Error{Code: CodeInvalidCall, Message: "the call has a number, and operation " + op.Name + " isn't sequenced"}
	case op.Sequenced && (len(c.Key) > store.MaxKeyLen-store.MaxNumber || strings.Contains(c.Key, store.ScopeMark)):
		return &Error{Code: CodeInvalidCall, Message: "the key of a sequence has up to " + strconv.Itoa(store.MaxKeyLen-store.MaxNumber) + " bytes without " + store.ScopeMark}
	}
	return nil
}

// position is what a number has to be compared with before it begins.
type position struct {
	mark   *Record // what is stored under the identity of the sequence; none if there is nothing
	newest *Record // of the number that began last, if that is another one; none if it is gone
	store.Mark
	// begun is the highest number that may have done something, and next the only one that may
	// begin without a gap.
	begun, next uint64
}

// readPosition reads where the delivery's sequence stands. A sequence is forgotten with the window
// of the number that began last.
func (d *delivery) readPosition(ctx context.Context) error {
	d.position = position{mark: &none, newest: &none}
	mark, err := d.engine.getIfAny(ctx, d.sequence)
	if err != nil {
		return err
	}
	p := &d.position
	p.mark = mark
	newest := mark // in format 1
	switch {
	case mark.Mark == nil:
	case mark.Mark.Newest == d.call.Sequence:
		newest = d.cur // which was read already
	default:
		if newest, err = d.engine.getIfAny(ctx, d.sequence.Numbered(mark.Mark.Newest)); err != nil {
			return err
		}
	}
	switch now := d.at.now; {
	case mark.State == absent, mark.Expired(now) && (newest.State == absent || newest.Expired(now)):
	case mark.Mark != nil:
		p.Mark, p.newest = *mark.Mark, newest
		if newest.State == absent || newest.Expired(now) && !nothingHappened(newest) {
			p.Begun = p.Newest // a missing record proves nothing, even about its own number
		}
	case mark.Sequence != 0:
		// In format 1 no number below the newest begins: the copies of those may be out of date.
		p.Mark, p.newest = store.Mark{Begun: mark.Sequence, Newest: mark.Sequence}, newest
	}
	return nil
}

// older reports whether the record belongs to a sequence in format 1: its newest number, under
// the identity of the sequence.
func (p *position) older(now store.Instant) bool {
	return p.mark.State != absent && p.mark.Mark == nil && !p.mark.Expired(now)
}

// rule decides what a number gets that would run if it had no sequence. lease is the time to
// judge the lease of the number that began last.
func (p *position) rule(op *Operation, call *Call, lease store.Instant) Decision {
	n, newest := call.Sequence, p.newest
	p.begun, p.next = p.Begun, p.Begun+1
	switch {
	case n < p.Begun && p.Begun == p.Newest: // whatever happens to the newest
		return Superseded
	case n == p.Newest, p.Newest == 0: // its own record has the outcome
	case running(newest, lease):
		return InFlight
	case newest.State == Processing:
		return Held // unless its holder is gone
	case !nothingHappened(newest):
		p.begun = p.Newest
	}
	switch {
	case n == p.Newest:
		return Execute
	case n < p.begun:
		return Superseded
	case newest.State.Terminal() && newest.Unfinished(): // sweeps look for its messages in this record
		return InFlight
	case !op.Gapless:
		return Execute
	}
	switch {
	case p.Newest != 0 && processed(newest, call):
		p.next = p.Newest + 1
	case newest.Disposition == DispositionAbandoned, newest.State.Terminal() && newest.BoundTo == call.BoundTo,
		p.Begun == p.Newest && nothingHappened(newest): // by its last record
		p.next = p.Newest // it belongs to this caller, so the number before it has an outcome
	}
	if n > p.next {
		return SequenceGap
	}
	return Execute
}

// maxGap bounds how many numbers findNext looks at.
const maxGap = 64

// findNext advances to the number that comes next for the delivery's caller: other callers may
// have begun numbers that this caller was refused earlier.
func (d *delivery) findNext(ctx context.Context) (Decision, error) {
	p, call := &d.position, &d.call
	for range maxGap {
		if p.next == call.Sequence {
			return Execute, nil
		}
		id := d.sequence.Numbered(p.next)
		rec, err := d.engine.getIfAny(ctx, id)
		if err == nil && rec.RefusedUntil > d.at.now && rec.BoundTo != call.BoundTo {
			rec, err = d.engine.getIfAny(ctx, refusalID(id, call.BoundTo))
		}
		if err != nil || !rec.State.Terminal() || rec.Expired(d.at.now) || !processed(rec, call) {
			return SequenceGap, err
		}
		p.next++
	}
	return SequenceGap, nil
}

// processed reports whether a number has an outcome, so that the next one may follow it without
// a gap. A number whose record is gone had an outcome. A refusal to somebody else is no outcome
// of this caller's sequence.
func processed(rec *Record, call *Call) bool {
	switch rec.Disposition {
	case DispositionAborted, DispositionAbandoned:
		return false
	case DispositionRejected:
		return rec.BoundTo == call.BoundTo
	}
	return true
}

// order decides whether the delivery's number may begin now, and waits for its turn if the
// delivery may wait. d.position is then what its claim has to follow.
func (d *delivery) order(ctx context.Context) (progress, error) {
	for range maxClaims {
		next, decision, err := d.ruleNumber(ctx)
		if next != proceed || err != nil {
			return next, err
		}
		p := &d.position
		switch {
		case decision == Execute:
			if next, err := d.passGone(ctx); next != proceed || err != nil {
				return startOver, err
			}
			return proceed, d.keepOlder(ctx)
		case decision == Held && !p.newest.Held:
			// Its holder is gone: do what a sweep would do, which may come later.
			if err := d.engine.attend(ctx, d.op, p.newest, d.at.now, new(Swept)); err != nil {
				return startOver, err
			}
			continue
		case (decision == InFlight || decision == SequenceGap) && d.waitTime() > d.waited:
			key := watchKey{id: p.newest.ID, change: p.newest.State != Processing, seen: p.newest.Revision}
			if decision == SequenceGap {
				key = watchKey{id: d.sequence, change: true, seen: p.mark.Revision}
			}
			changed, err := d.wait(ctx, key)
			if err != nil {
				return startOver, err
			}
			if changed != nil {
				return startOver, d.look(ctx) // another may have begun this number meanwhile
			}
		}
		// The mark was read after the number's own record, which may have changed since: the
		// number may have run, and the mark gone on.
		seen := d.cur.Revision
		if err := d.look(ctx); err != nil || d.cur.Revision != seen {
			return startOver, err
		}
		d.refuseNumber(decision)
		return answered, nil
	}
	return startOver, d.look(ctx)
}

// passGone moves the mark past the delivery's own number if its record is gone, before the
// number is claimed again: the new record wouldn't show that there was an earlier one.
func (d *delivery) passGone(ctx context.Context) (progress, error) {
	p := &d.position
	if p.mark.Mark == nil || p.Newest != d.call.Sequence || p.Begun <= p.mark.Mark.Begun {
		return proceed, nil
	}
	// The mark was read after the record, which another delivery may have claimed meanwhile.
	seen := d.cur.Revision
	if err := d.look(ctx); err != nil || d.cur.Revision != seen {
		return startOver, err
	}
	next := *p.mark
	next.UpdatedAt, next.Mark = d.at.now, &store.Mark{Begun: p.Begun, Newest: p.Newest}
	// A crash before this write leaves nothing. After it the mark is right even without the claim.
	stored, moved, err := d.engine.replace(ctx, d.op, p.mark, &next, store.ChangePostponed, nil)
	if err != nil || !moved {
		return startOver, err
	}
	p.mark = stored
	return proceed, nil
}

// markNames reports whether the mark names the claim that is stored, so that a holder may have
// it. The claim of a call without a number needs none.
func (d *delivery) markNames(ctx context.Context) (bool, error) {
	if !d.op.Sequenced || d.id == d.sequence {
		return true, nil
	}
	mark, err := d.engine.getIfAny(ctx, d.sequence)
	return err == nil && mark.Mark != nil && mark.Mark.Newest == d.call.Sequence && mark.Fence == d.cur.Fence, err
}

// ruleNumber decides what the delivery's number gets as the sequence stands now. It reports
// startOver if the number's record isn't the one that was read before.
func (d *delivery) ruleNumber(ctx context.Context) (progress, Decision, error) {
	if err := d.readPosition(ctx); err != nil {
		return startOver, "", err
	}
	if d.id != d.sequence && d.position.older(d.at.now) {
		if next := d.followOlder(); next != proceed {
			return next, d.ans.Decision, nil
		}
	}
	if d.id == d.sequence {
		return proceed, Execute, nil
	}
	decision := d.position.rule(&d.op.Operation, &d.call, d.engine.leaseTime(d.position.newest, d.at.now))
	if decision != SequenceGap {
		return proceed, decision, nil
	}
	decision, err := d.findNext(ctx)
	return proceed, decision, err
}

// refuseNumber answers a number that may not begin.
func (d *delivery) refuseNumber(decision Decision) {
	p := &d.position
	d.ans.Decision, d.ans.Record = decision, p.newest
	switch decision {
	case Superseded:
		d.ans.Record = &Record{ID: d.id, Sequence: p.begun}
	case SequenceGap:
		d.ans.Record = &Record{ID: d.id, Sequence: p.next}
	default:
		d.foreign = isForeign(&d.call, p.newest)
	}
}

// moveMark moves the mark to the number whose claim is stored. It reports false, and the claim
// must be given back, if another has moved it.
func (d *delivery) moveMark(ctx context.Context, claim *version) (bool, error) {
	if !d.op.Sequenced || d.id == d.sequence {
		return true, nil
	}
	p, op := &d.position, &d.op.Operation
	mark := store.NewMark(d.sequence, store.Mark{Begun: p.begun, Newest: d.call.Sequence}, claim.Record.Fence, d.at.now)
	mark.ExpiresAt = max(d.at.now.Add(claim.Record.Policy.Stays()), p.mark.ExpiresAt, p.newest.ExpiresAt)
	mark.NextAt = mark.ExpiresAt
	v := d.engine.newVersion(op, p.mark, mark, store.ChangePostponed)
	v.Deadline = claim.Deadline
	if d.tx != nil {
		return true, d.tx.applyMark(ctx, v)
	}
	// A crash before or after this write leaves a claim without a holder, as after the claim of
	// any call. If the mark wasn't moved, that claim never began; but that is no reason to
	// abort it, because after a failover the mark may be older than the claim.
	_, moved, err := d.engine.apply(ctx, v)
	return moved, err
}

// keepMark postpones the purge of a sequence's mark, which is due, as long as the number that
// began last is known. It reports false if the mark may be purged.
func (e *Engine) keepMark(ctx context.Context, op *operation, rec *Record, now store.Instant) (bool, error) {
	newest, err := e.getIfAny(ctx, rec.ID.Numbered(rec.Mark.Newest))
	if err != nil || newest.State == absent || newest.Expired(now) {
		return err != nil, err
	}
	next := *rec
	next.UpdatedAt, next.ExpiresAt = now, newest.ExpiresAt
	if !newest.State.Terminal() {
		next.ExpiresAt = now.Add(newest.Policy.Stays())
	}
	next.NextAt = next.ExpiresAt
	// A crash before this write leaves the mark due. A crash after it leaves nothing to do.
	_, _, err = e.replace(ctx, op, rec, &next, store.ChangePostponed, nil)
	return true, err
}

// giveBack moves the mark back from a number that is about to be purged and has done nothing,
// because a number whose record is gone counts as begun. It reports false if it couldn't; then
// the record stays.
func (e *Engine) giveBack(ctx context.Context, op *operation, rec *Record, now store.Instant) (bool, error) {
	sequence := rec.ID
	sequence.Key, _ = rec.ID.Number()
	mark, err := e.getIfAny(ctx, sequence)
	if err != nil || mark.Mark == nil || mark.Mark.Newest != rec.Sequence {
		return err == nil, err
	}
	if mark.Mark.Begun == 0 && fencePassed(mark, now) {
		// A crash before this write leaves mark and record, a crash after it the record.
		call, cancel := e.limited(ctx)
		defer cancel()
		n, err := e.extras.Purge.Purge(call, []store.Ref{{ID: mark.ID, Revision: mark.Revision}})
		return n == 1, err
	}
	next := *mark
	next.UpdatedAt, next.Mark = now, &store.Mark{Begun: mark.Mark.Begun, Newest: mark.Mark.Begun}
	// A crash before this write leaves the record, and the mark still names it. A crash after
	// it leaves a record that the mark has passed: its own delivery may still begin it again.
	_, moved, err := e.replace(ctx, op, mark, &next, store.ChangePostponed, nil)
	return moved, err
}

// mayPurge does what has to be done before an expired record of a sequence is purged, and
// reports whether it may be.
func (e *Engine) mayPurge(ctx context.Context, op *operation, rec *Record, now store.Instant) (bool, error) {
	switch {
	case rec.Mark != nil:
		keep, err := e.keepMark(ctx, op, rec, now)
		return !keep, err
	case rec.Sequence != 0 && nothingHappened(rec):
		return e.giveBack(ctx, op, rec, now)
	}
	return true, nil
}

// Sequences in format 1 had the newest number under the identity of the sequence, and copies of
// earlier outcomes under [store.ID.Numbered]. The newest number stays where it is, with all that
// happens to it, until the next one begins.

// followOlder deals with a delivery of a sequence whose newest number is in format 1. If it is
// the delivery's own number, the delivery continues with that record.
func (d *delivery) followOlder() progress {
	p := &d.position
	switch {
	case p.mark.Sequence == 0: // the operation was declared in another way
		d.ans.Decision, d.ans.Record = Conflict, p.mark
		d.foreign = isForeign(&d.call, p.mark)
		return answered
	case p.mark.Sequence == d.call.Sequence:
		d.id, d.cur, d.looked = d.sequence, p.mark, true
		return startOver
	}
	return proceed
}

// strayed reports whether the record that the delivery continues with doesn't belong to its
// number any more, because another number or the mark has taken its place.
func (d *delivery) strayed() bool {
	return d.op.Sequenced && d.id == d.sequence && d.cur.Sequence != d.call.Sequence
}

// keepOlder copies the newest number from the place that it had in format 1 to its own, before the
// mark takes that place.
func (d *delivery) keepOlder(ctx context.Context) error {
	p := &d.position
	if d.id == d.sequence || !p.older(d.at.now) {
		return nil
	}
	// The log has all this under the name of the sequence, so the copy adds no evidence. A
	// crash before this write leaves the number where it was. A crash after it leaves it in
	// both places; the older one counts, and is copied again.
	return d.copyRecord(ctx, p.mark, d.sequence.Numbered(p.Newest), store.ChangePostponed, func(*Record) {})
}
