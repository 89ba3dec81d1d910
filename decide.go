package semel

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/semelhq/semel/internal/engine/remnant"
	"github.com/semelhq/semel/store"
)

// Decision is what one delivery gets.
type Decision string

// The decisions.
const (
	// Execute: this delivery holds the lease and does the work.
	Execute Decision = "execute"
	// Replay: the outcome exists; the caller gets it.
	Replay Decision = "replay"
	// InFlight: another delivery is doing the work, or work that must come before it.
	InFlight Decision = "in_flight"
	// Conflict: the key was used with another payload. Neither executed nor
	// replayed.
	Conflict Decision = "conflict"
	// Held: see [Record].Held.
	Held Decision = "held"
	// TooLate: first sent so long ago that its outcome may have been forgotten.
	TooLate Decision = "too_late"
	// Throttled: too many duplicates, or a new call by a caller over its quota.
	Throttled Decision = "throttled"
	// OtherCaller: the call is bound to another caller, see [Call].BoundTo, and something
	// may have happened. Neither executed nor replayed; the caller learns nothing about it.
	OtherCaller Decision = "other_caller"
	// OtherDoor: the call came in through another door first, see [Call].Door. Neither
	// executed nor replayed; the caller learns nothing about it.
	OtherDoor Decision = "other_door"
	// Superseded: a later number of the sequence has begun, and this one has no outcome; see
	// [Call].Sequence. It is never executed. Answer.Record.Sequence is the newest number that
	// may have had an effect.
	Superseded Decision = "superseded"
	// SequenceGap: the number before this one has no outcome yet, and isn't running; see
	// Operation.Gapless. Answer.Record.Sequence is the number that comes next.
	SequenceGap Decision = "sequence_gap"
)

// Decisions lists the decisions. Every one but [Execute] and [Replay] is a refusal, with a
// code of the same name.
func Decisions() []Decision {
	return []Decision{Execute, Replay, InFlight, Conflict, Held, TooLate, Throttled, OtherCaller, OtherDoor, Superseded, SequenceGap}
}

// Code returns the code that refuses a delivery. It reports false for Execute and Replay, which
// refuse nothing.
func (d Decision) Code() (Code, bool) { return Code(d), d != Execute && d != Replay }

// ruling is the result of decide.
type ruling struct {
	decision Decision
	// hold is why the record must be written as held before the delivery is
	// answered; empty if it needn't be.
	hold string
}

// decide is the whole policy: what a delivery of call gets when cur is stored. It is a pure
// function. It first checks whom the record is bound to, because another caller may not even
// learn that its payload differs. It checks for a conflict before in flight, so that a client
// with a wrong payload needn't wait to be told. lease is the time to judge the record's lease
// by.
func decide(op *Operation, call *Call, cur *Record, now, lease store.Instant) ruling {
	switch {
	case isNew(call, cur, now):
		return ruling{decision: Execute}
	case cur.BoundTo != call.BoundTo && running(cur, lease):
		return ruling{decision: InFlight}
	case cur.BoundTo != call.BoundTo:
		return ruling{decision: OtherCaller}
	case cur.Door != call.Door:
		return ruling{decision: OtherDoor}
	case call.Sequence == 0 && (cur.Sequence != 0 || cur.Mark != nil): // the operation was declared in another way
		return ruling{decision: Superseded}
	case !call.Presents(cur):
		return ruling{decision: Conflict}
	case cur.State == Completed:
		return ruling{decision: Replay}
	case cur.State == Failed:
		if cur.Disposition == DispositionRejected || cur.Disposition == DispositionFailed && op.OnFailure == ReplayFailure {
			return ruling{decision: Replay}
		}
		return ruling{decision: Execute}
	case running(cur, lease):
		return ruling{decision: InFlight}
	case cur.Held:
		return ruling{decision: Held}
	case mayRunAgain(cur):
		return ruling{decision: Execute}
	default:
		return ruling{decision: Held, hold: heldReason(cur)}
	}
}

// decideRestored changes decide's ruling r if it would execute a call that the store was
// restored with; see [Internal.NewEpoch].
func decideRestored(r ruling, call *Call, cur *Record, now store.Instant) ruling {
	if r.decision != Execute || cur.Expired(now) {
		return r
	}
	if cur.BoundTo != call.BoundTo { // only the call's own caller may cause a hold
		return ruling{decision: OtherCaller}
	}
	return ruling{decision: Held, hold: heldRestored}
}

// isNew reports whether an execution would begin a new call, and need only exceed the record's
// fence. That is so if there is no record, if it has expired, if it is a tombstone, or if
// nothing has happened and the caller or the payload differs: an aborted call needs no proof of
// who asks, and a credential that was refused and then renewed must not lock the owner out of
// the key.
func isNew(call *Call, cur *Record, now store.Instant) bool {
	return cur.State == absent || cur.Expired(now) ||
		cur.State == Failed && (isTombstone(cur) || nothingHappened(cur) && (cur.BoundTo != call.BoundTo || startsAfresh(call, cur)))
}

// startsAfresh reports whether the caller of an aborted call sends another payload: a client
// that follows a redirect, or corrects a refused request. Nothing happened that it could
// contradict.
func startsAfresh(call *Call, cur *Record) bool {
	return cur.Disposition == DispositionAborted && cur.Confirmation == nil && cur.Door == call.Door && !call.Presents(cur)
}

// nothingHappened reports whether every attempt of the call has ended with proof that it
// had no effect.
func nothingHappened(cur *Record) bool {
	return cur.State == Failed && harmless(cur.Disposition) &&
		!slices.ContainsFunc(cur.Earlier, func(at store.AttemptRecord) bool { return !harmless(at.Disposition) }) &&
		!slices.ContainsFunc(cur.Effects, func(ef store.EffectRecord) bool { return ef.State != store.EffectRefuted })
}

// harmless reports whether an attempt that ended like this had no effect.
func harmless(d store.Disposition) bool {
	return d == DispositionAborted || d == DispositionRejected
}

// isForeign reports whether the record is of another caller's call, or of one that came
// through another door, so that a delivery of call may learn nothing of it.
func isForeign(call *Call, cur *Record) bool {
	return cur.BoundTo != call.BoundTo || cur.Door != call.Door
}

// running reports whether the attempt's holder may be at work. lease is the time to judge
// leases by.
func running(cur *Record, lease store.Instant) bool {
	return cur.State == Processing && !cur.Held && !leaseOver(cur, lease)
}

// mayRunAgain reports whether another attempt may follow one that lost its holder. An effect
// without a result forbids it under any policy. If all effects are in the ledger, the ledger
// proves what happened, and a further attempt replays the recorded results. Judge by the
// record's own policy, from the program that made the attempt: a later program's declaration
// says nothing about it.
func mayRunAgain(cur *Record) bool {
	if _, open := openEffect(cur); open {
		return false
	}
	return cur.Policy.MayRunAgain()
}

// heldRestored is why a call that a backup left unfinished is held.
const heldRestored = "the store was restored from a backup that has this call unfinished: what happened since is not known"

// heldReason says, for people, why an abandoned attempt is held.
func heldReason(cur *Record) string {
	if ef, open := openEffect(cur); open {
		return "the holder went away after effect " + ef.Name + " was started and before its result was recorded"
	}
	return "the holder went away and an effect is possible"
}

// fenceMargin is how much two engines' readings of the store's clock may differ.
const fenceMargin = time.Second

// fencePassed reports whether fences keep rising if the record is deleted. The next
// fence for this identity then comes from the clock alone, perhaps as read by a node
// that is behind this one.
func fencePassed(r *Record, now store.Instant) bool {
	return now.Add(-fenceMargin).Micros() > r.Fence
}

// open makes the record of the attempt that the delivery would begin. If that is a new call,
// only the fence of the stored record is used; any other record is continued. In a sequence
// fences rise with the numbers, too. The holder is call.Holder, or else the engine.
func (d *delivery) open() (*Record, error) {
	op, call, prev, now := d.op, &d.call, d.cur, d.at.now
	until, fence := now.Add(op.Lease), prev.Fence
	if d.position.mark != nil {
		fence = max(fence, d.position.mark.Fence) // the fence of the number that began last
	}
	next := &Record{
		ID: d.id, Fingerprint: call.Fingerprint, Principal: call.Principal, BoundTo: call.BoundTo, Door: call.Door,
		Sequence: call.Sequence,
		Holder:   cmp.Or(call.Holder, d.engine.node), Attempt: 1,
		CreatedAt: now, UpdatedAt: now, StartedAt: now, LeaseUntil: until, NextAt: until,
		Fence: store.NextFence(fence, now), Attributes: call.Attributes, Policy: op.promise(call),
	}
	next.Origin = next.Fence
	if prev.State != absent {
		next.RefusedUntil = refusedUntil(prev, now)
	}
	if op.KeepPayload {
		next.Payload = bytes.Clone(d.keepable())
	}
	if !isNew(call, prev, now) {
		last := *prev
		if last.State == Processing {
			if err := step(&last, evAbandon); err != nil {
				return nil, err
			}
			last.EndedAt = now
		}
		next.CreatedAt, next.Origin, next.Effects, next.Fingerprint = last.CreatedAt, last.Origin, last.Effects, last.Fingerprint
		next.Confirmation, next.Payload = last.Confirmation, last.Payload
		if !nothingHappened(&last) || last.Confirmation != nil {
			next.Attributes = last.Attributes
		} // otherwise they would name a first delivery that came to nothing (FOR-DATA.3)
		next.Attempt = last.Attempt + 1
		next.Earlier = followedBy(last.Earlier, asEarlier(&last))
	}
	if d.engine.events.Trace != nil {
		next.Attributes = traced(next.Attributes, d.trace)
	}
	return next, step(next, evOpen)
}

// keepable returns the delivery's payload if its operation keeps payloads and this one isn't
// too long, or else nil.
func (d *delivery) keepable() []byte {
	if !d.op.KeepPayload || len(d.call.Payload) > d.op.MaxResult {
		return nil
	}
	return d.call.Payload
}

// followedBy adds an attempt to a record's history. If that gets too long, it drops the oldest
// attempt without an effect, or else the oldest. So an attempt that may have had an effect
// outlives every one that had none.
func followedBy(earlier []store.AttemptRecord, last store.AttemptRecord) []store.AttemptRecord {
	if len(earlier) < store.MaxEarlier {
		return append(earlier[:len(earlier):len(earlier)], last)
	}
	drop := max(0, slices.IndexFunc(earlier, func(at store.AttemptRecord) bool { return harmless(at.Disposition) }))
	return append(slices.Delete(slices.Clone(earlier), drop, drop+1), last)
}

// successor returns a copy of cur with an event applied; newVersion gives it a new revision.
func successor(cur *Record, ev event, now store.Instant) (*Record, error) {
	next := new(Record)
	*next = *cur
	next.UpdatedAt = now
	return next, step(next, ev)
}

// promise returns the policy that a claim records, for judging its attempt later.
func (op *Operation) promise(call *Call) store.Policy {
	return store.Policy{
		Lease: op.Lease, Window: cmp.Or(call.Window, op.Window), Remember: op.Remember, MaxResult: op.MaxResult, Retry: op.OnAbandoned == RetryAbandoned,
		Ledger: op.Effects != nil, Archive: op.OnExpiry == ArchiveExpired, Reconcile: op.Reconcile != nil,
	}
}

// extend returns the successor of a processing record, with a lease that begins now.
func extend(cur *Record, ev event, now store.Instant) (*Record, error) {
	next, err := successor(cur, ev, now)
	if err == nil {
		next.LeaseUntil = now.Add(cur.Policy.Lease)
		next.NextAt = next.LeaseUntil
	}
	return next, err
}

// end makes the terminal form of a processing record.
func end(cur *Record, ev event, now store.Instant, res Result, failure *store.Failure) (*Record, error) {
	next, err := successor(cur, ev, now)
	if err != nil {
		return nil, err
	}
	next.Attributes, res.Attributes = cur.Attributes.With(res.Attributes), nil
	if len(res.Data) > cur.Policy.MaxResult {
		res = Result{Tombstone: true}
	}
	next.EndedAt = now
	next.LeaseUntil = 0
	next.Held, next.HeldReason, next.HeldFrom = false, "", store.Revision{}
	if next.Result, next.Failure = res, nil; failure != nil {
		next.Failure = kept(failure)
	}
	if nothingHappened(next) && (next.Disposition == DispositionAborted || next.BoundTo != "") {
		next.Policy.Remember = 0 // there is nothing that must not happen again
	}
	next.ExpiresAt = max(now.Add(next.Policy.Stays()), cur.RefusedUntil)
	next.NextAt = next.AnswerUntil()
	return next, nil
}

// forget makes what is left of a record after its window.
func forget(cur *Record, now store.Instant) (*Record, error) {
	next, err := successor(cur, evForget, now)
	if err == nil {
		remnant.Leave(next)
	}
	return next, err
}

// asOf is the record as it is at now, whether a sweep has written that or not.
func asOf(cur *Record, now store.Instant) *Record {
	if remnant.Due(cur, now) {
		cur, _ = forget(cur, cur.AnswerUntil()) // every terminal record may be forgotten
	}
	return cur
}

// hold makes the held form of a processing record. If its operation has a reconciler,
// it is due at once.
func hold(cur *Record, reason string, now store.Instant) (*Record, error) {
	next, err := successor(cur, evHold, now)
	if err != nil {
		return nil, err
	}
	next.LeaseUntil, next.NextAt = 0, 0
	next.Held, next.HeldReason = true, keptText(reason)
	if !cur.Held {
		next.HeldFrom = cur.Revision
	}
	if cur.Policy.Reconcile {
		next.NextAt = now
	}
	return next, nil
}

// maxText is how much of a handler's text a record holds, in bytes.
const maxText = 1 << 10

// kept returns f with texts that every store can hold: bounded, valid UTF-8 without NUL.
func kept(f *store.Failure) *store.Failure {
	if f == nil {
		return nil
	}
	return &store.Failure{Code: keptText(f.Code), Message: keptText(f.Message)}
}

func keptText(s string) string {
	if len(s) <= maxText && store.ValidText(s) {
		return s
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s[:min(len(s), maxText)], "\uFFFD"), "\x00", "\uFFFD")
}

// Presents reports whether the call's payload is the record's, compared by the scheme of the
// record's own fingerprint.
func (c *Call) Presents(rec *Record) bool {
	return rec.Fingerprint == c.Fingerprint ||
		c.SamePayload != nil && !rec.Fingerprint.IsZero() && c.SamePayload(rec.Fingerprint)
}

// conceal hides the record from a caller who can't prove to be its owner, see [Call].Unproved.
// The delivery gets the same answer as another caller's.
func (d *delivery) conceal() {
	switch cur := d.ans.Record; d.ans.Decision {
	case Replay, Conflict, Held, Superseded:
		d.ans.Decision = OtherCaller
		if running(cur, d.engine.leaseTime(cur, d.at.now)) {
			d.ans.Decision = InFlight // whatever its payload is
		}
	}
	d.foreign = true
}
