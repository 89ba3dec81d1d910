package store

import (
	"slices"
	"time"
)

// undelivered reports whether a message is pending or parked.
func (r *Record) undelivered() bool {
	return slices.ContainsFunc(r.Outbox, func(m Message) bool {
		return m.State == MessagePending || m.State == MessageParked
	})
}

// Record is everything known about one identity (CORE-FIELD.1). Its ID,
// Fingerprint and CreatedAt never change during the life of a call; Result and
// Failure never change once set.
type Record struct {
	ID ID
	// Revision names the write that made this version of the record.
	Revision Revision
	// State is the state of the newest attempt.
	State State
	// Disposition says how the newest attempt ended; empty while it is
	// processing.
	Disposition Disposition
	// Fingerprint is the digest of the payload (payloadHash).
	Fingerprint Fingerprint
	// Principal is the caller of the newest attempt. It differs from ID.Principal if the
	// operation shares its keys within the tenant.
	Principal string
	// BoundTo is what the call is bound to, see BoundTo of semel.Call; empty if the identity
	// names its owner. It never changes during the life of a call.
	BoundTo string
	// Door is the door that the call came through first, see Door of semel.Call. It never
	// changes during the life of a call.
	Door string

	// Sequence is this call's place in the sequence of its key; zero if the operation isn't
	// sequenced. See Sequenced of semel.Operation. The identity is then [ID.Numbered], except
	// in records of format 1, where the newest number of a sequence had the identity of the
	// sequence.
	Sequence uint64
	// Mark orders the numbers of a sequence. A record with one isn't a call: it has the
	// identity of the sequence and no outcome, and answers no delivery. Nil otherwise.
	Mark *Mark
	// RefusedUntil is the time until which refusals to other callers under the same key may
	// have records of their own; zero if there are none. This record outlives them.
	RefusedUntil Instant

	// Fence rises with every new holder of this identity, even across a purge: it is the
	// store's time in microseconds, or one more than the last fence, whichever is higher.
	Fence int64
	// Origin is the fence of the first attempt of this call. Effect keys are
	// derived from it.
	Origin int64
	// Attempt counts the attempts of this call, from 1.
	Attempt int
	// Holder names the engine that runs, or ran, the newest attempt.
	Holder string
	// Policy is what the claim of the newest attempt promised.
	Policy Policy

	// CreatedAt is when the call was first claimed.
	CreatedAt Instant
	// UpdatedAt is when this version was written.
	UpdatedAt Instant
	// StartedAt is when the newest attempt was claimed.
	StartedAt Instant
	// EndedAt is when the newest attempt became terminal.
	EndedAt Instant
	// LeaseUntil is the time until which the newest attempt's holder may be alive; zero when
	// terminal or held.
	LeaseUntil Instant
	// ExpiresAt is when the call is forgotten: after the window, or Policy.Remember if that is
	// longer, counted from EndedAt. Zero while processing: an unsettled call never expires.
	ExpiresAt Instant
	// NextAt is when somebody must look at the record next: lease end, next reconciliation,
	// expiry. Zero: never.
	NextAt Instant

	// Held says that nobody may run the call until it is settled: the record is
	// processing, its holder is gone, an effect is possible.
	Held bool
	// HeldReason says why the record is held.
	HeldReason string
	// HeldFrom names the version that was declared held; zero if the record isn't held. Whoever
	// made that version, and never handed it out, can take it back.
	HeldFrom Revision
	// Result is the answer that duplicates get. It may be set for a failed attempt too, if the
	// answer to a failure is more than its code.
	Result Result
	// Failure is why the attempt failed; nil when completed or processing.
	Failure *Failure
	// Settled says who ended the newest attempt, if that wasn't its holder because it was held
	// and then settled, or which operator confirmed the call. Nil otherwise.
	Settled *Settled
	// Effects is the ledger of this call, shared by its attempts.
	Effects []EffectRecord
	// Earlier holds the ended attempts before the newest one, oldest first, up to
	// [MaxEarlier].
	Earlier []AttemptRecord
	// Payload is the request as the first delivery brought it, if the operation keeps it; nil
	// otherwise.
	Payload []byte
	// Attributes come from the first delivery of this call, and from its results; see
	// [Result].Attributes.
	Attributes Attributes
	// Confirmation says how the call was or will be confirmed; nil if its operation asks for
	// none.
	Confirmation *Confirmation
	// Outbox holds the messages that the completed call sends.
	Outbox []Message
	// Compensation is the call that undoes this one; nil if there is none.
	Compensation *Compensation
}

// Mark says which numbers of a sequence were begun.
type Mark struct {
	// Begun is the highest number that may have had an effect, as far as the mark shows; zero
	// if there is none.
	Begun uint64
	// Newest is the number that began last. Its own record says how it went.
	Newest uint64
}

// Policy is the policy in force when an attempt was claimed. The attempt is judged by it,
// because another program, or a later version of this one, may declare the operation in
// another way, or not at all.
type Policy struct {
	// Lease is how long a silent holder keeps the right to execute.
	Lease time.Duration `json:"lease_ns,omitempty"`
	// Window is how long the record holds the outcome.
	Window time.Duration `json:"window_ns,omitempty"`
	// Remember is how long the record stays if that is longer; see [Record.AnswerUntil].
	Remember time.Duration `json:"remember_ns,omitempty"`
	// MaxResult is the largest result that the record holds, in bytes.
	MaxResult int `json:"max_result,omitempty"`
	// Retry says that another attempt may follow if this one's holder goes away, although
	// effects may repeat (RetryAbandoned of package semel).
	Retry bool `json:"retry,omitempty"`
	// Ledger says that all its effects are in the ledger (Operation.Effects).
	Ledger bool `json:"ledger,omitempty"`
	// Archive says that the record is archived before it is purged.
	Archive bool `json:"archive,omitempty"`
	// Reconcile says that a reconciler settles the attempt if it is held.
	Reconcile bool `json:"reconcile,omitempty"`
}

// MayRunAgain reports whether another attempt may follow one that lost its holder. An effect
// that was started and has no result forbids it under any policy.
func (p Policy) MayRunAgain() bool { return p.Retry || p.Ledger }

// Stays is how long a record stays after its attempt has ended, with its answer or without.
func (p Policy) Stays() time.Duration { return max(p.Window, p.Remember) }

// MaxEarlier is how many ended attempts a record keeps beside the newest one.
// The oldest are dropped; Record.Attempt keeps counting.
const MaxEarlier = 16

// Result is an answer. The engine doesn't interpret it.
type Result struct {
	// Data is returned byte for byte to every duplicate.
	Data []byte
	// Tombstone says that the record doesn't hold the whole answer: it was too large,
	// streamed, or unfit to be repeated. Data may still have something about it. The call does
	// not run again.
	Tombstone bool
	// Attributes are facts that become known only with the answer, such as the id of a created
	// object. The write that ends the attempt, or settles the effect, moves them to the
	// record's attributes; a stored result has none. It drops invalid ones and ones beyond the
	// limit, because no outcome may be lost over them.
	Attributes Attributes
}

// IsZero reports whether there is no result.
func (r Result) IsZero() bool { return r.Data == nil && !r.Tombstone }

// Failure is why an attempt failed. Its text may be shown to the caller.
type Failure struct {
	Code    string `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
}

// AttemptRecord is an ended attempt in a record's history. It never changes.
type AttemptRecord struct {
	Number      int
	Fence       int64
	Holder      string
	Principal   string
	Disposition Disposition
	Failure     *Failure
	// Settled is as in [Record].
	Settled   *Settled
	StartedAt Instant
	EndedAt   Instant
}

// AnswerUntil is when the window of a terminal record ends. Where that is before ExpiresAt, the
// record then loses its answer and keeps what names the call, so that it doesn't run again.
func (r *Record) AnswerUntil() Instant { return r.ExpiresAt.Add(r.Policy.Window - r.Policy.Stays()) }

// OnlyNamed reports whether the record has lost its answer because its window is over.
func (r *Record) OnlyNamed() bool {
	return r.State.Terminal() && r.Policy.Remember > r.Policy.Window && r.NextAt == r.ExpiresAt
}

// Expired reports whether the record's time is over at now. An expired record
// counts as absent, whether it was purged or not. A record with a pending or parked
// message, or an unfinished compensation, doesn't expire.
func (r *Record) Expired(now Instant) bool {
	return r.State.Terminal() && r.ExpiresAt != 0 && now >= r.ExpiresAt && !r.Unfinished()
}

// Unfinished reports whether a terminal record has work left: a pending or parked message,
// or a compensation. It isn't purged until that is done.
func (r *Record) Unfinished() bool {
	return (len(r.Outbox) != 0 && r.undelivered()) || (r.Compensation != nil && r.Compensation.State == CompensationStarted)
}
