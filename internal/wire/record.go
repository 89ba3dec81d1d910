package wire

import (
	"strings"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/verdict"
	"github.com/semelhq/semel/store"
)

// Owner names the owner of a key, each part by its own name.
type Owner struct {
	Tenant    string `json:"tenant"`
	Principal string `json:"principal" doc:"Whose keys they are; empty where the operation shares its keys within the tenant."`
	Scope     string `json:"scope,omitempty" doc:"What the keys of the call are unique in beside its tenant and principal, such as session=s1."`
}

// OwnerOf returns the owner in an identity. A refusal that the engine stores separately for its
// caller has neither principal nor scope: bound_to names the caller.
func OwnerOf(id *semel.ID) Owner {
	principal, scope := id.Scope()
	if strings.Contains(scope, store.ScopeMark) {
		scope = ""
	}
	return Owner{id.Tenant, principal, scope}
}

// principal includes the scope, as in [semel.ID].
func (o *Owner) principal() string {
	if o.Scope == "" {
		return o.Principal
	}
	return o.Principal + store.ScopeMark + o.Scope
}

// Record is a record: the fields of the core model, and everything else that the API
// shows.
type Record struct {
	ID string `json:"id" doc:"Names the record in addresses. It isn't a secret: anybody can read tenant, principal, operation and key from it."`
	Owner
	Sequence    uint64            `json:"sequence,omitempty" doc:"The number of the call among those of its key, for a sequenced operation."`
	Door        string            `json:"door,omitempty" doc:"The door that the call came through: api, http and others."`
	Key         string            `json:"idempotency_key"`
	Operation   string            `json:"operation"`
	BoundTo     string            `json:"bound_to,omitempty" doc:"Digest of the credential that the call is bound to, where nobody verified its caller."`
	PayloadHash semel.Fingerprint `json:"payload_hash,omitzero" doc:"The fingerprint of the payload; absent if none is compared."`
	Status      semel.State       `json:"status" enum:"processing,completed,failed"`
	Disposition store.Disposition `json:"disposition,omitzero" enum:"completed,rejected,failed,aborted,abandoned" doc:"How the newest attempt ended."`
	Hold
	Verdict *verdict.Verdict `json:"verdict,omitempty" doc:"How often the work was begun, and how it ended. Absent in answers to who executes the call, and while the store gives no time."`
	KeptResult
	Error        *Failure               `json:"error,omitempty" doc:"Why the newest attempt failed."`
	Settled      *Settled               `json:"settled,omitempty" doc:"Who said how the newest attempt ended, if that wasn't its holder."`
	Fence        int64                  `json:"fence" doc:"Rises with every new holder."`
	Attempt      int                    `json:"attempt" doc:"Counts the attempts, from 1."`
	Holder       string                 `json:"holder,omitempty" doc:"The node that began the newest attempt."`
	CreatedAt    store.Instant          `json:"created_at" format:"date-time"`
	UpdatedAt    store.Instant          `json:"updated_at" format:"date-time"`
	StartedAt    store.Instant          `json:"started_at" format:"date-time" doc:"When the newest attempt began."`
	EndedAt      store.Instant          `json:"ended_at,omitzero" format:"date-time"`
	LeaseUntil   store.Instant          `json:"lease_until,omitzero" format:"date-time" doc:"Until when the holder may be silent."`
	ExpiresAt    store.Instant          `json:"expires_at,omitzero" format:"date-time" doc:"When the call is forgotten. Its answer may be gone before, see the verdict."`
	Attempts     []Attempt              `json:"attempts" nullable:"false" doc:"The ended attempts that are kept, the oldest first, and the newest one."`
	Effects      []Effect               `json:"effects" nullable:"false" doc:"The ledger of external calls."`
	Attributes   store.Attributes       `json:"attributes,omitempty" nullable:"false" doc:"What the first delivery said about the call, and what its outcomes did."`
	Confirmation *Confirmation          `json:"confirmation,omitempty" doc:"How the call was confirmed, or is to be."`
	Messages     []Outgoing             `json:"messages,omitempty" nullable:"false" doc:"What the completed call sends."`
	Compensation *Compensation          `json:"compensation,omitempty" doc:"The call that undoes this one."`
	Decisions    map[semel.Decision]int `json:"decisions,omitzero" required:"false" nullable:"false" doc:"What deliveries got since the record was made, on all nodes, some seconds late. Only where one record is asked for."`
}

// Hold says whether a call is held.
type Hold struct {
	Held       bool   `json:"held,omitempty" doc:"Nobody may run the call until it is settled: its holder is gone, and an effect is possible."`
	HeldReason string `json:"held_reason,omitempty" doc:"Why the call is held, for people."`
}

// Failure says why an attempt failed, in words that callers may see.
type Failure struct {
	Code    string `json:"code" required:"false" maxLength:"1024" doc:"The holder's own short word."`
	Message string `json:"message" required:"false" maxLength:"1024"`
}

// Settled says who decided something about a call instead of its holder.
type Settled struct {
	By     string        `json:"by" enum:"operator,reconciler"`
	Who    string        `json:"who,omitempty" doc:"The operator's name, or whom the reconciler asked."`
	Reason string        `json:"reason,omitempty" doc:"For people."`
	At     store.Instant `json:"at" format:"date-time"`
}

// Attempt is one attempt of a record.
type Attempt struct {
	Number      int               `json:"number"`
	Fence       int64             `json:"fence"`
	Holder      string            `json:"holder,omitempty"`
	Principal   string            `json:"principal,omitempty"`
	Disposition store.Disposition `json:"disposition,omitzero" enum:"completed,rejected,failed,aborted,abandoned"`
	Error       *Failure          `json:"error,omitempty"`
	Settled     *Settled          `json:"settled,omitempty"`
	StartedAt   store.Instant     `json:"started_at" format:"date-time"`
	EndedAt     store.Instant     `json:"ended_at,omitzero" format:"date-time"`
}

// Effect is one external call in the ledger.
type Effect struct {
	Name  string            `json:"name"`
	Key   string            `json:"key" doc:"What the provider gets as its idempotency key, the same in all attempts."`
	State store.EffectState `json:"state" enum:"started,confirmed,refuted"`
	Fence int64             `json:"fence" doc:"That of the attempt that started it last."`
	KeptResult
	Error     *Failure      `json:"error,omitempty" doc:"The provider's refusal."`
	Settled   *Settled      `json:"settled,omitempty" doc:"Who said what became of it, if that wasn't the holder of an attempt."`
	StartedAt store.Instant `json:"started_at" format:"date-time"`
	SettledAt store.Instant `json:"settled_at,omitzero" format:"date-time"`
}

// Outgoing is a message of a completed call. The API doesn't show its payload, which may
// be large and is meant for the receiver.
type Outgoing struct {
	ID          string             `json:"id" doc:"What the receiver deduplicates by."`
	Name        string             `json:"name"`
	Destination string             `json:"destination"`
	ContentType string             `json:"content_type,omitempty"`
	Size        int                `json:"payload_bytes,omitempty" doc:"Absent where it has no payload."`
	Order       string             `json:"order,omitempty"`
	State       store.MessageState `json:"state" enum:"pending,delivered,parked,discarded"`
	Tries       int                `json:"tries" doc:"Deliveries that did not succeed since the message was made or replayed."`
	NextAt      store.Instant      `json:"next_at,omitzero" format:"date-time"`
	CreatedAt   store.Instant      `json:"created_at" format:"date-time"`
	SettledAt   store.Instant      `json:"settled_at,omitzero" format:"date-time"`
	Error       *Failure           `json:"error,omitempty" doc:"Why the last delivery did not succeed, or with the code replayed or discarded, an operator's reason."`
}

// Confirmation says how a call was or will be confirmed.
type Confirmation struct {
	Principal   string        `json:"principal,omitempty" doc:"Who was asked."`
	Tries       int           `json:"tries" doc:"Wrong tokens and proofs."`
	ConfirmedAt store.Instant `json:"confirmed_at,omitzero" format:"date-time"`
}

// Compensation is the call that undoes a completed one.
type Compensation struct {
	Record    string                  `json:"record" doc:"The record of the compensating call."`
	Operation string                  `json:"operation"`
	State     store.CompensationState `json:"state" enum:"started,done,failed"`
	Reason    string                  `json:"reason,omitempty"`
	StartedAt store.Instant           `json:"started_at" format:"date-time"`
	SettledAt store.Instant           `json:"settled_at,omitzero" format:"date-time"`
	Error     *Failure                `json:"error,omitempty"`
}

// Kept is a record with everything that a store has, even what the API doesn't show.
type Kept struct {
	Record
	Revision store.Revision            `json:"revision"`
	Origin   int64                     `json:"origin"`
	Policy   store.Policy              `json:"policy,omitzero"`
	NextAt   store.Instant             `json:"next_at,omitzero"`
	Tokens   []store.ConfirmationToken `json:"confirmation_tokens,omitempty"`
	// Payload is the request, if the operation keeps payloads; nil and empty differ.
	Payload []byte `json:"payload_base64,omitzero"`
	// Payloads has the payloads of the messages, in order.
	Payloads [][]byte `json:"payloads_base64,omitempty"`
	// CompensatedBy is the caller of the compensating call, even if that isn't part of its
	// identity.
	CompensatedBy      string        `json:"compensated_by,omitempty"`
	CompensationShared bool          `json:"compensation_shared,omitempty"`
	CompensationNextAt store.Instant `json:"compensation_next_at,omitzero"`
	// Mark and RefusedUntil belong to format 2 of records.
	Mark         *KeptMark     `json:"mark,omitempty"`
	RefusedUntil store.Instant `json:"refused_until,omitzero"`
}

// KeptMark is a [store.Mark].
type KeptMark struct {
	Begun  uint64 `json:"begun"`
	Newest uint64 `json:"newest"`
}
