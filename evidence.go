package semel

import (
	"context"

	"github.com/semelhq/semel/store"
)

// EvidenceLevel is how much of what happens to the calls of an operation goes to
// the evidence log (IDS-XII.1).
type EvidenceLevel string

// The levels. Each includes those before it.
const (
	// EvidenceNone keeps nothing; the default.
	EvidenceNone EvidenceLevel = "none"
	// EvidenceChanges keeps every change of a record except renewed leases, in the
	// write that makes it.
	EvidenceChanges EvidenceLevel = "changes"
	// EvidenceDecisions also keeps what every delivery got. Entries of deliveries
	// without a change are written in batches, soon after the answer.
	EvidenceDecisions EvidenceLevel = "decisions"
	// EvidenceDurable answers a delivery only when its entry is durable.
	EvidenceDurable EvidenceLevel = "durable"
)

// Witness makes the entries of the evidence log; see package evidence. Its methods
// are called by many goroutines at once.
type Witness interface {
	// Changed returns the entries of a change, to be written atomically with next. prev is the
	// record before, zero if there was none. The engine calls it once for each version that it
	// tries to write, even if the write then finds another version stored. Don't hold on to
	// the records for long. For [store.ChangePurged] no record is written: next is prev with
	// the time of the purge as UpdatedAt and the person or process behind it as Settled, and
	// the entries are durable before the record is deleted.
	Changed(op *Operation, prev, next *Record, change store.Change) []store.Entry
	// Decided records the decision about a delivery that changed nothing: every decision
	// except the execution of a recorded call, and except throttling, so that a flood doesn't
	// get into the log. With [EvidenceDurable] and a verified caller it returns once the entry
	// is durable. If pays isn't nil, Decided asks it before writing anything about a refused
	// delivery. If Decided returns an error, the delivery isn't answered.
	Decided(ctx context.Context, op *Operation, call *Call, ans *Answer, pays Payer) error
	// EraseRecord erases the plain text of the entries about an identity, and returns how many
	// entries there are. Their proofs remain.
	EraseRecord(ctx context.Context, id ID) (int, error)
	// Expects reports whether, by the log's newest entry about an identity since a time, the
	// store should still have a record of a call that may have done something. It may miss the
	// entries of the last second, unless all is set.
	Expects(ctx context.Context, id ID, since, now store.Instant, all bool) (bool, error)
	// Subject is a digest of an identity that nobody can compute, or find by trying names,
	// without a secret that all witnesses of the store share.
	Subject(id ID) store.Subject
}

// Payer counts an entry of the given size, written about a delivery at a time of the store's
// clock, against the [Quotas] of the delivery's sender. It reports false, and counts nothing,
// if they have used up a quota.
type Payer func(bytes int, at store.Instant) bool

// newVersion assigns next a revision as the successor of prev, and builds its evidence
// entries. Every write of a record goes through it. UpdatedAt never goes back, although the
// engine that wrote before may have read the store's clock as a little later.
func (e *Engine) newVersion(op *Operation, prev, next *Record, change store.Change) version {
	next.UpdatedAt = max(next.UpdatedAt, prev.UpdatedAt)
	next.Revision = e.newRevision()
	if e.extras.Clock != nil && next.ExpiresAt > prev.ExpiresAt {
		e.keepLonger(next)
	}
	v := version{Write: store.Write{Record: next, Expect: prev.Revision, Was: prev.Attributes}}
	if op.evident(EvidenceChanges) && change != store.ChangePostponed {
		v.Evidence = e.opts.Witness.Changed(op, prev, next, change)
	}
	if e.quotas.some {
		v.usage = e.quotas.withEvidence(e.quotas.usageOf(prev, next), v.Evidence)
	}
	return v
}

// keepLonger extends a window that has just begun by the time that the store's clock is held
// back: the clock may catch up before the window is over.
func (e *Engine) keepLonger(next *Record) {
	held := e.clockState(next.UpdatedAt).Held
	if next.NextAt == next.AnswerUntil() {
		next.NextAt = next.NextAt.Add(held)
	}
	next.ExpiresAt = next.ExpiresAt.Add(held)
}

// witnessPurge writes the evidence of a purge before the purge.
func (e *Engine) witnessPurge(ctx context.Context, op *Operation, rec *Record, by *store.Settled) error {
	es := e.extras.Evidence
	if es == nil || !op.evident(EvidenceChanges) {
		return nil
	}
	next := *rec
	next.UpdatedAt, next.Settled = by.At, by
	entries := e.opts.Witness.Changed(op, rec, &next, store.ChangePurged)
	if len(entries) == 0 {
		return nil
	}
	call, cancel := e.limited(ctx)
	defer cancel()
	if err := es.AppendEvidence(call, entries); err != nil {
		return e.storeError(ctx, "append evidence", rec.ID, err)
	}
	return nil
}

// witness records evidence of a decision that changed nothing. If that fails, it withdraws the
// answer.
func (d *delivery) witness(ctx context.Context) error {
	e, op := d.engine, &d.op.Operation
	c, a := d.call, d.ans // copies, so that calls without evidence stay on the stack
	if err := e.opts.Witness.Decided(ctx, op, &c, &a, e.quotas.payer(ctx, op, &c)); err != nil {
		d.ans = Answer{}
		return &Error{Code: CodeStoreUnavailable, Message: "the evidence of this answer can't be kept", RetryAfter: minRetryAfter, Err: err}
	}
	return nil
}

// evident reports whether the operation keeps evidence of this level.
func (op *Operation) evident(level EvidenceLevel) bool {
	switch op.Evidence {
	case "", EvidenceNone:
		return false
	case EvidenceChanges:
		return level == EvidenceChanges
	}
	return true
}

// supportsEvidence reports why the engine can't keep the evidence an operation
// demands, or nil.
func (e *Engine) supportsEvidence(op *Operation) error {
	why := ""
	switch {
	case !op.evident(EvidenceChanges), e.extras.Evidence != nil && e.opts.Witness != nil:
		return nil
	case e.extras.Evidence == nil && e.extras.NoEvidence != nil:
		why = ": " + e.extras.NoEvidence.Error()
	case e.extras.Evidence == nil:
		why = ", which this store can't write together with its records"
	default:
		why = ", and Options.Witness is not set"
	}
	return &Error{Code: CodeInvalidOperation, Message: "operation " + op.Name + " demands evidence" + why}
}
