package semel

import (
	"cmp"
	"strings"
	"time"
)

// Decision is what one delivery gets.
type Decision string

// The decisions.
const (
	// Execute: this delivery holds the lease and does the work.
	Execute Decision = "execute"
	// Replay: the outcome exists; the caller gets it.
	Replay Decision = "replay"
	// InFlight: another delivery is doing the work.
	InFlight Decision = "in_flight"
	// Conflict: the key was used with another payload. Neither executed nor
	// replayed.
	Conflict Decision = "conflict"
	// Held: see [Record].Held.
	Held Decision = "held"
	// Expired: first sent before the window that is kept, and refused.
	Expired Decision = "expired"
	// Throttled: too many duplicates.
	Throttled Decision = "throttled"
	// OtherCaller: the call is bound to another caller, see [Call].BoundTo. Neither
	// executed nor replayed, and nothing is told about it.
	OtherCaller Decision = "other_caller"
	// OtherDoor: the call came in through another door first, see [Call].Door. Neither
	// executed nor replayed, and nothing is told about it.
	OtherDoor Decision = "other_door"
)

// ruling is what decide makes of a stored record.
type ruling struct {
	decision Decision
	// hold is why the record must be written as held before the delivery is told
	// so; empty where that is not needed.
	hold string
}

// decide is the whole policy: what a delivery of call gets when cur is stored. It
// changes nothing and asks nobody. Whom the record is bound to comes before all that
// it says, because another caller may not learn even that its payload differs.
// Conflict comes before in flight, so that a client with a wrong payload need not
// wait to be told. restored says that cur is from a backup, see [Engine.NewEpoch].
func decide(op *Operation, call *Call, cur *Record, now Instant, restored bool) ruling {
	r := rule(op, call, cur, now)
	if restored && r.decision == Execute && !cur.Expired(now) {
		return ruling{decision: Held, hold: heldRestored}
	}
	return r
}

// rule is decide where the store was never restored.
func rule(op *Operation, call *Call, cur *Record, now Instant) ruling {
	switch {
	case cur.Expired(now):
		return ruling{decision: Execute}
	case stranger(call, cur) != "":
		return ruling{decision: stranger(call, cur)}
	case cur.Fingerprint != call.Fingerprint:
		return ruling{decision: Conflict}
	case cur.State == Completed:
		return ruling{decision: Replay}
	case cur.State == Failed:
		if cur.Disposition == DispositionRejected || cur.Disposition == DispositionFailed && op.OnFailure == ReplayFailure {
			return ruling{decision: Replay}
		}
		return ruling{decision: Execute}
	case cur.Held != "":
		return ruling{decision: Held}
	case !cur.leaseOver(now):
		return ruling{decision: InFlight}
	case mayRunAgain(cur):
		return ruling{decision: Execute}
	default:
		return ruling{decision: Held, hold: heldReason(cur)}
	}
}

// stranger is what a delivery gets that has nothing to do with what is stored but its
// key: nothing is told to it. It is empty for all others.
func stranger(call *Call, cur *Record) Decision {
	switch {
	case cur.BoundTo != call.BoundTo:
		return OtherCaller
	case cur.Door != call.Door:
		return OtherDoor
	}
	return ""
}

// mayRunAgain reports whether an attempt whose holder went away may be followed
// by another. An effect without a result forbids it whatever the policy. Where
// all effects are in the ledger, that proves what happened, and a further attempt
// replays the results that are recorded. Whether they are was promised by the
// program that made the attempt; what its successor promises says nothing about it.
func mayRunAgain(cur *Record) bool {
	if _, open := cur.openEffect(); open {
		return false
	}
	return cur.Policy.Retry || cur.Policy.Ledger
}

// heldRestored is why a call that a backup left unfinished is held.
const heldRestored = "the store was restored from a backup that has this call unfinished: what happened since is not known"

// heldReason tells people why an abandoned attempt is held.
func heldReason(cur *Record) string {
	if ef, open := cur.openEffect(); open {
		return "the holder went away after effect " + ef.Name + " was started and before its result was recorded"
	}
	return "the holder went away and an effect is possible"
}

// nextFence is higher than every fence this identity has had: at least one more
// than the last one known, and at least the store's time in microseconds, which
// is higher than the fence of any record that was purged (see fencePassed).
func nextFence(last int64, now Instant) int64 {
	return max(last+1, now.micros())
}

// fenceMargin is by how much the clock, as two engines read it, may differ.
const fenceMargin = time.Second

// fencePassed reports whether deleting the record keeps fences rising, although the
// next one for this identity comes from the clock alone, maybe as a node reads it
// that is behind this one.
func fencePassed(r *Record, now Instant) bool {
	return now.Add(-fenceMargin).micros() > r.Fence
}

// open makes next, which is empty, the record of a new attempt. prev is what is
// stored now, or the zero Record; a prev that expired only lends its fence, any
// other is continued. The call names its holder, or else node is.
func open(op *Operation, id *ID, call *Call, prev *Record, now Instant, node string, next *Record) error {
	until := now.Add(op.Lease)
	*next = Record{
		ID: *id, Fingerprint: call.Fingerprint, Principal: call.Principal, BoundTo: call.BoundTo, Door: call.Door, Holder: cmp.Or(call.Holder, node), Attempt: 1,
		CreatedAt: now, UpdatedAt: now, StartedAt: now, LeaseUntil: until, NextAt: until,
		Fence: nextFence(prev.Fence, now), Attributes: call.Attributes, Policy: op.promise(),
	}
	next.Origin = next.Fence
	if prev.State != absent && !prev.Expired(now) {
		last := *prev
		if last.State == Processing {
			if err := last.step(evAbandon); err != nil {
				return err
			}
			last.EndedAt = now
		}
		next.CreatedAt, next.Origin, next.Effects = last.CreatedAt, last.Origin, last.Effects
		next.Attributes, next.Confirmation = last.Attributes, last.Confirmation
		next.Attempt = last.Attempt + 1
		earlier := last.Earlier[max(0, len(last.Earlier)+1-MaxEarlier):]
		next.Earlier = append(earlier[:len(earlier):len(earlier)], last.asEarlier())
	}
	return next.step(evOpen)
}

// successor is a copy of cur after an event, without a revision of its own yet.
func successor(cur *Record, ev event, now Instant) (*Record, error) {
	next := new(Record)
	*next = *cur
	next.UpdatedAt = now
	return next, next.step(ev)
}

// promise is what a claim says in its record.
func (op *Operation) promise() Policy {
	return Policy{
		Lease: op.Lease, Window: op.Window, MaxResult: op.MaxResult, Retry: op.OnAbandoned == RetryAbandoned,
		Ledger: op.Effects != nil, Archive: op.Archive, Reconcile: op.Reconcile != nil,
	}
}

// extend makes the successor of a processing record whose lease begins now.
func extend(cur *Record, ev event, now Instant) (*Record, error) {
	next, err := successor(cur, ev, now)
	if err == nil {
		next.LeaseUntil = now.Add(cur.Policy.Lease)
		next.NextAt = next.LeaseUntil
	}
	return next, err
}

// end makes the terminal form of a processing record.
func end(cur *Record, ev event, now Instant, res Result, failure *Failure) (*Record, error) {
	next, err := successor(cur, ev, now)
	if err != nil {
		return nil, err
	}
	if len(res.Data) > cur.Policy.MaxResult {
		res = Result{Tombstone: true}
	}
	next.EndedAt = now
	next.LeaseUntil, next.Held = 0, ""
	next.Result, next.Failure = res, failure.kept()
	next.ExpiresAt = now.Add(cur.Policy.Window)
	next.NextAt = next.ExpiresAt
	return next, nil
}

// hold makes the held form of a processing record. A reconciler, if one is
// expected, is due at once.
func hold(cur *Record, reason string, now Instant) (*Record, error) {
	next, err := successor(cur, evHold, now)
	if err != nil {
		return nil, err
	}
	next.LeaseUntil, next.NextAt = 0, 0
	next.Held = keptText(reason)
	if cur.Policy.Reconcile {
		next.NextAt = now
	}
	return next, nil
}

// maxText bounds what is kept of a handler's words, in bytes.
const maxText = 1 << 10

// kept is f as every store can keep it.
func (f *Failure) kept() *Failure {
	if f == nil {
		return nil
	}
	return &Failure{Code: keptText(f.Code), Message: keptText(f.Message)}
}

func keptText(s string) string {
	if len(s) <= maxText && validText(s) {
		return s
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s[:min(len(s), maxText)], "\uFFFD"), "\x00", "\uFFFD")
}
