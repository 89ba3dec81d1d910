package semel

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/semelhq/semel/internal/engine/remnant"
	"github.com/semelhq/semel/store"
)

// Calls of callers whom nobody verified, which are bound to the credential that came with them.
// Anybody can send a made-up credential, so such a call must not keep the key from its owner,
// or take up the store's room, for long.

// tombstoneLife is how long the record of an aborted attempt stays when nobody may need it. It
// is longer than a claim can be on its way to the store, see Options.StoreTimeout, and longer
// than two nodes' readings of the clock may differ.
const tombstoneLife = time.Minute

// isTombstone reports whether the record says only that nothing happened, so that the next
// delivery begins a new call. A record that waits for its confirmation says more.
func isTombstone(rec *Record) bool {
	return rec.BoundTo != "" && rec.Disposition == DispositionAborted && rec.Confirmation == nil && nothingHappened(rec)
}

// buried returns rec, which has just ended, or the tombstone to store in its place.
func buried(rec *Record) *Record {
	if !isTombstone(rec) {
		return rec
	}
	return remnant.OfNothing(rec, max(rec.EndedAt.Add(tombstoneLife), rec.RefusedUntil))
}

// refusalID returns the identity for storing a refusal for the caller who got it, if another
// caller has the key. No call has it, because its scope is longer than [store.MaxScopeLen].
func refusalID(id ID, boundTo string) ID {
	digest := func(s string) string {
		sum := sha256.Sum256([]byte(s))
		return store.ScopeMark + hex.EncodeToString(sum[:])
	}
	id.Principal = digest(boundTo) + digest(id.Principal)
	return id
}

// refusedTo reports whether the record is a refusal that the caller may still ask for, while
// others may have the key.
func refusedTo(rec *Record, now store.Instant) bool {
	return rec.Disposition == DispositionRejected && nothingHappened(rec) && now < rec.AnswerUntil()
}

// ownRefusal looks for the refusal that the delivery's caller got earlier, if another caller
// has since got the key: it may be in a record of its own until RefusedUntil. The delivery is
// then judged by the refusal.
func (d *delivery) ownRefusal(ctx context.Context) error {
	cur := d.cur
	if cur.BoundTo == d.call.BoundTo && !isTombstone(cur) {
		return nil
	}
	rec, err := d.engine.getIfAny(ctx, refusalID(d.id, d.call.BoundTo))
	if err == nil && rec.BoundTo == d.call.BoundTo && refusedTo(rec, d.at.now) {
		d.cur = rec
	}
	return err
}

// setAside puts a refusal into a record of its own before the delivery's claim takes its place,
// so that the caller who got it still gets it. A refusal never changes, so a copy of it can't be
// out of date.
func (d *delivery) setAside(ctx context.Context) error {
	if !refusedTo(d.cur, d.at.now) || d.cur.BoundTo == d.call.BoundTo {
		return nil
	}
	// A crash before this write leaves the refusal where it was. A crash after it leaves it in
	// both places, with the same content, and each copy is purged at the end of its window.
	return d.copyRecord(ctx, d.cur, refusalID(d.cur.ID, d.cur.BoundTo), store.ChangeMoved, func(next *Record) {
		next.ExpiresAt, next.NextAt, next.RefusedUntil, next.Policy.Remember = next.AnswerUntil(), next.AnswerUntil(), 0, 0 // nothing happened
	})
}

// copyRecord writes rec under another identity, whatever is stored there.
func (d *delivery) copyRecord(ctx context.Context, rec *Record, id ID, kind store.Change, change func(next *Record)) error {
	for range maxClaims {
		old, err := d.engine.getIfAny(ctx, id)
		if err != nil {
			return err
		}
		next := *rec
		next.ID = id
		change(&next)
		_, applied, err := d.engine.apply(ctx, d.engine.newVersion(&d.op.Operation, old, &next, kind))
		if err != nil || applied {
			return err
		}
	}
	return errTooFast
}

// refusedUntil returns the time until which refusals under the key may have records of their
// own, once a claim replaces rec.
func refusedUntil(rec *Record, now store.Instant) store.Instant {
	until := rec.RefusedUntil
	if refusedTo(rec, now) {
		until = max(until, rec.AnswerUntil())
	}
	if until <= now {
		return 0
	}
	return until
}

// hold makes the held form of a processing record. A hold of a caller whom nobody verified ends
// with the window, counted from the beginning of the attempt, unless it is about money.
func (op *Operation) hold(cur *Record, reason string, now store.Instant) (*Record, error) {
	next, err := hold(cur, reason, now)
	if err == nil && next.NextAt == 0 && op.letsGo(next) {
		next.NextAt = next.StartedAt.Add(next.Policy.Stays())
	}
	return next, err
}

// letsGo reports whether a hold of the record ends with its window.
func (op *Operation) letsGo(rec *Record) bool { return rec.BoundTo != "" && !op.Financial }

// letGo ends a hold that nobody has settled within its window: the call then counts as
// forgotten.
func (e *Engine) letGo(ctx context.Context, op *operation, rec *Record, now store.Instant) error {
	next, err := end(rec, evAbandon, now, Result{}, &store.Failure{Code: string(CodeUnknown), Message: "nobody settled the call within its window"})
	if err != nil {
		return err
	}
	next.ExpiresAt, next.Policy.Remember = max(now, next.RefusedUntil), 0
	next.NextAt = next.ExpiresAt
	// A crash before this write leaves the hold to be found again. A crash after it leaves a
	// record that is purged like any expired one.
	_, _, err = e.replace(ctx, op, rec, next, store.ChangeEnded, byReaper)
	return err
}
