package semel

import "context"

// EvidenceLevel is how much of what happens to the calls of an operation goes to
// the evidence log (IDS-XII.1).
type EvidenceLevel string

// The levels. Each includes those before it.
const (
	// EvidenceNone keeps nothing; the default.
	EvidenceNone EvidenceLevel = "none"
	// EvidenceChanges keeps every change of a record, but for renewed leases, in
	// the write that makes it.
	EvidenceChanges EvidenceLevel = "changes"
	// EvidenceDecisions keeps what every delivery got too. Those that changed
	// nothing are written together, soon after they were answered.
	EvidenceDecisions EvidenceLevel = "decisions"
	// EvidenceDurable answers a delivery only when that is durable.
	EvidenceDurable EvidenceLevel = "durable"
)

// Entry is one entry of the evidence log, as a store keeps it. It looks into none
// of its members. Nobody changes them once a store was given the entry.
type Entry struct {
	// Leaf stands for what the log proves, in the form in which its [Witness] wants
	// it kept: it never changes and is never deleted.
	Leaf []byte
	// Opening explains the leaf to those who may know. It can be erased.
	Opening []byte
	// Subject is what the entry is found by; zero for nothing.
	Subject Subject
	// Hash is that of the leaf in the Merkle tree, or zero. It is not kept: a store
	// may remember it for a while, to save who extends the tree the reading.
	Hash [32]byte
}

// Subject is a digest of what entries are about.
type Subject [16]byte

// EvidenceStore is a [Store] that keeps the evidence log beside its records:
// Write.Evidence in the same atomic write as the record, or not at all. Without it
// an operation that demands evidence is refused.
//
// The store numbers the entries without gaps, from 0, in an order that is the same
// for everybody and for ever. An entry is numbered some time after it was written,
// which readers do not notice: they see those that are numbered. Entries of one
// identity are numbered in the order of their writes.
type EvidenceStore interface {
	// AppendEvidence adds entries that belong to no record, together, and is
	// durable when it returns. An error means unknown: they may be there.
	AppendEvidence(ctx context.Context, entries []Entry) error
	// ReadEvidence returns up to limit entries from the number on, in their order.
	// Whatever Apply and AppendEvidence acknowledged before it was called is
	// numbered by then. An opening that was erased is nil.
	ReadEvidence(ctx context.Context, from uint64, limit int) ([]Entry, error)
	// FindEvidence returns the numbers of up to limit entries of a subject, from
	// the number on, rising. It knows what an earlier ReadEvidence could see.
	FindEvidence(ctx context.Context, subject Subject, from uint64, limit int) ([]uint64, error)
	// EraseEvidence deletes the openings of the entries from a number to before
	// another.
	EraseEvidence(ctx context.Context, from, to uint64) error
	// PutEvidenceTiles keeps parts of the Merkle tree over the leaves by name. A
	// tile is written again only with the same content.
	PutEvidenceTiles(ctx context.Context, tiles map[string][]byte) error
	// EvidenceTile returns a tile, or [ErrNotFound].
	EvidenceTile(ctx context.Context, name string) ([]byte, error)
}

// Change is what a write does to a record, as evidence tells it.
type Change string

// The changes.
const (
	ChangeClaimed      Change = "claimed"                // an attempt began
	ChangeEnded        Change = "ended"                  // it became terminal; the disposition says how
	ChangeHeld         Change = "held"                   // nobody may run it until it is settled
	ChangeEffect       Change = "effect"                 // the ledger changed
	ChangeMessage      Change = "message"                // a message of the outbox was delivered, parked, replayed or discarded
	ChangeCompensation Change = "compensation"           // a compensation was started or ended
	ChangeChallenged   Change = "confirmation_requested" // a confirmation token was given out
	ChangeUnconfirmed  Change = "confirmation_refused"   // a wrong or late token was presented
	ChangePostponed    Change = "postponed"              // only when it is looked at next changed
	ChangePurged       Change = "purged"                 // it is about to be deleted by an operator's word
)

// Witness makes the entries of the evidence log; see package evidence. Its methods
// are called by many goroutines at once.
type Witness interface {
	// Changed returns the entries of a change, which are written with next or not
	// at all. prev is the record before, zero if there was none. It is asked once
	// for each write that is tried, also for those that then find something else
	// stored, and may not keep the records' memory busy for long. For
	// [ChangePurged] nothing is written: next is prev, updated at the purge, and
	// the entries are durable before the record is deleted.
	Changed(op *Operation, prev, next *Record, change Change) []Entry
	// Decided takes note of what a delivery got that changed nothing: everything
	// but the execution of a call that is recorded, and but throttling, which must
	// not let a flood into the log. With [EvidenceDurable] it
	// returns when that is durable, and an error keeps the answer back.
	Decided(ctx context.Context, op *Operation, call *Call, ans *Answer) error
}

// stamp makes next ready to be written as the successor of prev: it names the
// write and makes its evidence. Every write of a record goes through it.
func (e *Engine) stamp(op *Operation, prev, next *Record, change Change) version {
	next.Revision = e.newRevision()
	v := version{rec: next, expect: prev.Revision}
	if op.evident(EvidenceChanges) && change != ChangePostponed {
		v.evidence = e.opts.Witness.Changed(op, prev, next, change)
	}
	return v
}

// witnessPurge makes the evidence of a purge durable.
func (e *Engine) witnessPurge(ctx context.Context, op *Operation, rec *Record, now Instant) error {
	es, ok := e.store.(EvidenceStore)
	if !ok || !op.evident(EvidenceChanges) {
		return nil
	}
	next := *rec
	next.UpdatedAt = now
	entries := e.opts.Witness.Changed(op, rec, &next, ChangePurged)
	if len(entries) == 0 {
		return nil
	}
	call, cancel := e.limited(ctx)
	defer cancel()
	if err := es.AppendEvidence(call, entries); err != nil {
		return e.storeError("append evidence", rec.ID, err)
	}
	return nil
}

// witness takes note of a delivery that changed nothing. The error keeps its answer
// back.
func (e *Engine) witness(ctx context.Context, op *Operation, call *Call, ans *Answer) error {
	if !op.evident(EvidenceDecisions) {
		return nil
	}
	c, a := *call, *ans // copies, so that calls without evidence stay on the stack
	if err := e.opts.Witness.Decided(ctx, op, &c, &a); err != nil {
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

// evidenceRefused asks a store that is an [EvidenceStore] by its type, and finds only
// when it is opened whether it can be one: its method RefusesEvidence says why not.
func evidenceRefused(s Store) error {
	if r, ok := s.(interface{ RefusesEvidence() error }); ok {
		return r.RefusesEvidence()
	}
	return nil
}

// supportsEvidence reports why the engine can't keep the evidence an operation
// demands, or nil.
func (e *Engine) supportsEvidence(op *Operation) error {
	if !op.evident(EvidenceChanges) {
		return nil
	}
	if err := evidenceRefused(e.store); err != nil {
		return &Error{Code: CodeInvalidOperation, Message: "operation " + op.Name + " demands evidence: " + err.Error()}
	}
	if _, ok := e.store.(EvidenceStore); !ok {
		return &Error{Code: CodeInvalidOperation, Message: "operation " + op.Name + " demands evidence, which this store can't write together with its records"}
	}
	if e.opts.Witness == nil {
		return &Error{Code: CodeInvalidOperation, Message: "operation " + op.Name + " demands evidence, and Options.Witness is not set"}
	}
	return nil
}
