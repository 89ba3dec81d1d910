package semel

import "time"

// Record is everything known about one identity (CORE-FIELD.1). Its ID,
// Fingerprint and CreatedAt never change during the life of a call; Result and
// Failure never change once set.
type Record struct {
	ID ID `json:"id"`
	// Revision names the write that made this version of the record.
	Revision Revision `json:"revision"`
	// State is that of the newest attempt.
	State State `json:"state"`
	// Disposition says how the newest attempt ended; empty while it is
	// processing.
	Disposition Disposition `json:"disposition,omitzero"`
	// Fingerprint is the digest of the payload (payloadHash).
	Fingerprint Fingerprint `json:"fingerprint,omitzero"`
	// Principal is who acted in the newest attempt. It differs from
	// ID.Principal where the operation shares its keys within the tenant.
	Principal string `json:"principal,omitempty"`
	// BoundTo is what the call is bound to, as [Call].BoundTo says; empty where its
	// identity says whose it is. It never changes during the life of a call.
	BoundTo string `json:"bound_to,omitempty"`
	// Door is the one that the call came through first, as [Call].Door says. It never
	// changes during the life of a call.
	Door string `json:"door,omitempty"`

	// Fence strictly rises with every new holder of this identity, also across
	// a purge: it is the store's time in microseconds, or one more than the
	// last fence, whichever is higher.
	Fence int64 `json:"fence"`
	// Origin is the fence of the first attempt of this call. Effect keys are
	// derived from it.
	Origin int64 `json:"origin"`
	// Attempt counts the attempts of this call, from 1.
	Attempt int `json:"attempt"`
	// Holder names the engine that runs, or ran, the newest attempt.
	Holder string `json:"holder,omitempty"`
	// Policy is what the claim of the newest attempt promised.
	Policy Policy `json:"policy,omitzero"`

	// CreatedAt is when the call was first claimed.
	CreatedAt Instant `json:"created_at"`
	// UpdatedAt is when this version was written.
	UpdatedAt Instant `json:"updated_at"`
	// StartedAt is when the newest attempt was claimed.
	StartedAt Instant `json:"started_at"`
	// EndedAt is when the newest attempt became terminal.
	EndedAt Instant `json:"ended_at,omitzero"`
	// LeaseUntil is until when the holder of the newest attempt may be
	// alive; zero when terminal or held.
	LeaseUntil Instant `json:"lease_until,omitzero"`
	// ExpiresAt is the end of the window, counted from EndedAt. Zero while
	// processing: what is not settled never expires.
	ExpiresAt Instant `json:"expires_at,omitzero"`
	// NextAt is the next instant at which somebody must look at the record:
	// lease end, next reconciliation, expiry. Zero: never.
	NextAt Instant `json:"next_at,omitzero"`

	// Held is why the record is held, for people; empty when it is not. A held
	// record is processing, its holder is gone, an effect is possible.
	Held string `json:"held,omitempty"`
	// Result is the answer that duplicates get. It may be set for a failed
	// attempt too, where the answer to a failure is more than its code.
	Result Result `json:"result,omitzero"`
	// Failure is why the attempt failed; nil when completed or processing.
	Failure *Failure `json:"failure,omitempty"`
	// Effects is the ledger of this call, shared by its attempts.
	Effects []EffectRecord `json:"effects,omitempty"`
	// Earlier holds the ended attempts before the newest one, oldest first. At
	// most [MaxEarlier] are kept.
	Earlier []AttemptRecord `json:"earlier,omitempty"`
	// Attributes are what the first delivery of this call said about it.
	Attributes Attributes `json:"attributes,omitempty"`
	// Confirmation is how the call was confirmed, or is to be; nil where its
	// operation asks for none.
	Confirmation *Confirmation `json:"confirmation,omitempty"`
	// Outbox holds the messages that the completed call sends.
	Outbox []Message `json:"outbox,omitempty"`
	// Compensation is the call that undoes this one; nil if there is none.
	Compensation *Compensation `json:"compensation,omitempty"`
}

// Policy is what the claim of an attempt promised about it. Whoever judges the
// attempt goes by it: another program may declare the operation in another way, or
// not at all, and so may a later version of this one.
type Policy struct {
	// Lease is how long a silent holder keeps the right to execute.
	Lease time.Duration `json:"lease,omitempty"`
	// Window is how long the outcome is kept.
	Window time.Duration `json:"window,omitempty"`
	// MaxResult is the largest result that is kept, in bytes.
	MaxResult int `json:"max_result,omitempty"`
	// Retry says that the attempt may be followed by another if its holder goes
	// away, although effects may repeat ([RetryAbandoned]).
	Retry bool `json:"retry,omitempty"`
	// Ledger says that all its effects are in the ledger (Operation.Effects).
	Ledger bool `json:"ledger,omitempty"`
	// Archive says that the record is archived before it is purged.
	Archive bool `json:"archive,omitempty"`
	// Reconcile says that a reconciler settles the attempt if it is held.
	Reconcile bool `json:"reconcile,omitempty"`
}

// MaxEarlier is how many ended attempts a record keeps beside the newest one.
// The oldest are dropped; Record.Attempt goes on counting.
const MaxEarlier = 16

// Result is an answer. The engine never looks into it.
type Result struct {
	// Data is returned byte for byte to every duplicate.
	Data []byte `json:"data,omitzero"`
	// Tombstone says that the whole answer was not kept: it was too large,
	// streamed, or not fit to be repeated. Data may still tell something about
	// it. The call does not run again.
	Tombstone bool `json:"tombstone,omitempty"`
}

// IsZero reports whether there is no result.
func (r Result) IsZero() bool { return r.Data == nil && !r.Tombstone }

// Failure is why an attempt failed, in words that may be shown to the caller.
type Failure struct {
	Code    string `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
}

// AttemptRecord is an ended attempt in a record's history. It never changes.
type AttemptRecord struct {
	Number      int         `json:"number"`
	Fence       int64       `json:"fence"`
	Holder      string      `json:"holder,omitempty"`
	Principal   string      `json:"principal,omitempty"`
	Disposition Disposition `json:"disposition"`
	Failure     *Failure    `json:"failure,omitempty"`
	StartedAt   Instant     `json:"started_at"`
	EndedAt     Instant     `json:"ended_at"`
}

// EffectState is where one effect stands in the ledger.
type EffectState string

// The states of an effect.
const (
	// EffectStarted: the intent is durable; whether the call reached the
	// provider is not known. Without a result it is never called again.
	EffectStarted EffectState = "started"
	// EffectConfirmed: it happened and its result is recorded.
	EffectConfirmed EffectState = "confirmed"
	// EffectRefuted: it did not happen. With a Failure the provider refused for
	// good and the refusal is replayed; without one it may be started again.
	EffectRefuted EffectState = "refuted"
)

// EffectRecord is one external call in the ledger.
type EffectRecord struct {
	// Name is unique within the call.
	Name string `json:"name"`
	// Key is what the provider gets as its idempotency key. It is the same in
	// all attempts.
	Key   string      `json:"key"`
	State EffectState `json:"state"`
	// Fence is that of the attempt that started it last.
	Fence int64 `json:"fence"`
	// Result is what the effect returned, once confirmed.
	Result Result `json:"result,omitzero"`
	// Failure is the provider's refusal, once refuted for good.
	Failure   *Failure `json:"failure,omitempty"`
	StartedAt Instant  `json:"started_at"`
	SettledAt Instant  `json:"settled_at,omitzero"`
}

// Expired reports whether the record's window is over at now. An expired record
// counts as absent, whether it was purged or not. A record that still has a
// message to deliver, or is being compensated, does not expire.
func (r *Record) Expired(now Instant) bool {
	return r.State.Terminal() && r.ExpiresAt != 0 && now >= r.ExpiresAt && !r.busy()
}

// busy reports whether a terminal record has work left.
func (r *Record) busy() bool {
	return (len(r.Outbox) != 0 && r.undelivered()) || (r.Compensation != nil && r.Compensation.State == CompensationStarted)
}

// nextLook is when somebody must look at a terminal record: for its messages, its
// compensation, or to purge it.
func (r *Record) nextLook() Instant {
	if !r.busy() {
		return r.ExpiresAt
	}
	at := Instant(0)
	for i := range r.Outbox {
		if m := &r.Outbox[i]; m.State == MessagePending {
			at = earlier(at, m.NextAt)
		}
	}
	if c := r.Compensation; c != nil && c.State == CompensationStarted {
		at = earlier(at, c.NextAt)
	}
	return at
}

// earlier is the earlier of two instants, where zero is never.
func earlier(a, b Instant) Instant {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// leaseOver reports whether the holder of a processing record has to be given
// up at now.
func (r *Record) leaseOver(now Instant) bool {
	return r.Held == "" && now >= r.LeaseUntil
}

// openEffect returns the first effect that was started and has no result.
func (r *Record) openEffect() (EffectRecord, bool) {
	for _, ef := range r.Effects {
		if ef.State == EffectStarted {
			return ef, true
		}
	}
	return EffectRecord{}, false
}

// asEarlier is the newest attempt as history.
func (r *Record) asEarlier() AttemptRecord {
	return AttemptRecord{
		Number: r.Attempt, Fence: r.Fence, Holder: r.Holder, Principal: r.Principal,
		Disposition: r.Disposition, Failure: r.Failure, StartedAt: r.StartedAt, EndedAt: r.EndedAt,
	}
}
