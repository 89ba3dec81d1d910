package evidence

import (
	"crypto/sha256"
	_ "embed"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/canon"
	"github.com/semelhq/semel/store"
)

// Schema is the JSON Schema 2020-12 of leaves and openings.
//
//go:embed artifact.schema.json
var Schema []byte

// Type says what an artifact is about.
type Type string

// The types. The specification of idempotent commands has the first two; the others are
// ours.
const (
	// TypeObservation is a delivery's answer: first_seen if its call is new, duplicate_replayed
	// if it got the recorded outcome.
	TypeObservation Type = "observation.emitted"
	// TypeRejected is a refused call: with the reason idempotency_conflict if its key was used
	// with another payload, with the reason rejected if whoever executes it refused.
	TypeRejected Type = "execution.rejected"

	TypeStarted   Type = "execution.started"   // a further attempt at a call began
	TypeExecuted  Type = "execution.executed"  // the attempt completed
	TypeFailed    Type = "execution.failed"    // it failed
	TypeAborted   Type = "execution.aborted"   // it ended, and nothing had happened
	TypeAbandoned Type = "execution.abandoned" // its holder is gone, and another attempt may follow
	TypeSettled   Type = "execution.settled"   // it was held, and somebody said how it ended; by says who
	TypeReleased  Type = "execution.released"  // its claim was given back, and nothing was executed under it
	TypeHeld      Type = "execution.held"      // its holder is gone, and nobody may run it until it is settled

	TypeEffect       Type = "effect.changed"       // an entry of the ledger changed; the state says how
	TypeMessage      Type = "message.changed"      // a message of the outbox changed; the state says how
	TypeCompensation Type = "compensation.changed" // the call that undoes it changed; the state says how

	TypeConfirmationRequested Type = "confirmation.requested" // a token was issued
	TypeConfirmationRefused   Type = "confirmation.refused"   // a wrong or late token was presented
	TypeConfirmationGiven     Type = "confirmation.given"     // an operator confirmed it; by says who
	TypeConfirmationConsumed  Type = "confirmation.consumed"  // a confirmation was used up; the execution follows

	// TypePurged says that an operator is deleting the record before its window is over. If
	// that failed, the entries that follow show the record.
	TypePurged Type = "record.purged"
	// TypeMoved is a refusal that moved to a record of its own, for the caller who got it,
	// because another caller claimed the key.
	TypeMoved Type = "record.moved"
	// TypeForgotten is a record that lost its outcome with its window, while its call stays known.
	TypeForgotten Type = "record.forgotten"

	// TypeRestored says that the store was restored from a backup. Calls since the backup may
	// have run again.
	TypeRestored Type = "store.restored"

	// TypeAnswered is any other answer to a delivery: execute for an unrecorded call,
	// in_flight, held, or too_late.
	TypeAnswered Type = "delivery.answered"
)

// The decisions that the specification names; the others are values of [semel.Decision].
const (
	DecisionFirstSeen = "first_seen"
	DecisionReplayed  = "duplicate_replayed"
	DecisionConflict  = "conflict_rejected"
)

// Why a call was rejected: it came with another payload, or its handler refused it.
const (
	ReasonConflict = "idempotency_conflict"
	ReasonRejected = "rejected"
)

// Artifact is a leaf. Its JSON is canonical (RFC 8785).
type Artifact struct {
	// ID is unique, except that an entry without a record may be in the log twice: after an
	// unknown result the write is repeated.
	ID   string `json:"artifact_id"`
	Type Type   `json:"artifact_type"`
	// Commitment is the digest of the opening; see [Commit].
	Commitment string `json:"commitment"`
	// EmittedAt is the time of the change, or of the answer, by the store's clock.
	EmittedAt time.Time `json:"emitted_at"`
	Payload   Payload   `json:"payload"`
	// Tenant is the blinded name of the tenant, the same in all entries of a log.
	Tenant string `json:"tenant_id"`
	// Version is the version of the form: [Version], or an earlier one.
	Version int `json:"v"`
}

// Version is the form of new artifacts; [ParseArtifact] reads the earlier ones, too. Version 2
// added count, from and until, operation_ref, sequence, sequence_ref and unfinished, and every
// change has its content; in version 1 the first programs left it out.
const Version = 2

// Payload is the content of an artifact, without empty members. Fingerprints and the outcome
// reference are keyed digests: you can compare them only with each other.
type Payload struct {
	Attempt int `json:"attempt,omitempty"`
	// By says who decided instead of the holder: operator or reconciler. The opening has their
	// name and reason.
	By string `json:"by,omitempty"`
	// Change is the change of the record that the artifact is evidence of.
	Change store.Change `json:"change,omitempty"`
	// Content is a keyed digest of the record after the change, for the audit.
	Content string `json:"content,omitempty"`
	Counted
	// Decision is the answer to a delivery.
	Decision string `json:"decision,omitempty"`
	// Disposition is how the newest attempt had ended by that time.
	Disposition string `json:"disposition,omitempty"`
	// Durability is the store's level of durability, by its settings.
	Durability store.Level `json:"durability,omitempty"`
	// Executed says whether the delivery got the execution, in entries about a delivery.
	Executed *bool `json:"executed,omitempty"`
	// Fence is the fence of the attempt, in digits.
	Fence string `json:"fence,omitempty"`
	// Fingerprint is the call's fingerprint, in entries about a delivery; later entries about the
	// attempt have the same fence. Presented is the fingerprint of a delivery with another payload.
	Fingerprint string `json:"fingerprint,omitempty"`
	// KeptUntil is when the record's window ends or, while its attempt runs, the earliest time
	// when it can end.
	KeptUntil time.Time `json:"kept_until,omitzero"`
	// Operation is the blinded name of the operation.
	Operation  string `json:"operation_ref,omitempty"`
	OutcomeRef string `json:"outcome_ref,omitempty"`
	Presented  string `json:"presented_fingerprint,omitempty"`
	Reason     string `json:"reason,omitempty"`
	// Record is the blinded name of the record, the same in all entries about it.
	Record string `json:"record_ref,omitempty"`
	Numbered
	// State is the state of the effect, message or compensation afterwards.
	State string `json:"state,omitempty"`
	// Unfinished says that the record has messages to deliver or a compensation to finish, and
	// stays until that is done, whatever KeptUntil says.
	Unfinished bool `json:"unfinished,omitempty"`
}

// Counted is for several deliveries with the same answer. They aren't among the other entries.
// Without a record, they are deliveries of one operation, whatever their keys.
type Counted struct {
	// Count is their number; zero: the entry isn't about several.
	Count uint64 `json:"count,omitempty"`
	// From and Until are the times of the first and the last.
	From  time.Time `json:"from,omitzero"`
	Until time.Time `json:"until,omitzero"`
}

// Numbered is for a call in a sequence.
type Numbered struct {
	// Sequence is the number of the call, in digits. SequenceRef is the blinded name of the
	// sequence, if the number has a record of its own.
	Sequence    string `json:"sequence,omitempty"`
	SequenceRef string `json:"sequence_ref,omitempty"`
}

// Opening says in clear what an artifact is about. Its JSON is canonical.
type Opening struct {
	// CommandID, CorrelationID and RequestID come from the first delivery.
	CommandID     string `json:"command_id,omitempty"`
	CorrelationID string `json:"correlation_id,omitempty"`
	// FailureCode says why it failed.
	FailureCode string `json:"failure_code,omitempty"`
	// Fingerprint is set if the leaf has one.
	Fingerprint string `json:"fingerprint,omitempty"`
	// IdempotencyKey is the key that the caller gave. With Operation, Principal and Tenant,
	// and the leaf's sequence, it is the identity.
	IdempotencyKey string `json:"idempotency_key"`
	// Item names the effect, the message or the compensating call.
	Item      string `json:"item,omitempty"`
	Operation string `json:"operation"`
	// OutcomeSHA256 is [OutcomeDigest] of the outcome.
	OutcomeSHA256 string `json:"outcome_sha256,omitempty"`
	// PresentedBy, PresentedCommandID, PresentedRequestID and PresentedFingerprint come from
	// this delivery, if they differ.
	PresentedBy          string `json:"presented_by,omitempty"`
	PresentedCommandID   string `json:"presented_command_id,omitempty"`
	PresentedFingerprint string `json:"presented_fingerprint,omitempty"`
	PresentedRequestID   string `json:"presented_request_id,omitempty"`
	Principal            string `json:"principal"`
	// Reason is the operator's reason.
	Reason    string `json:"reason,omitempty"`
	RequestID string `json:"request_id,omitempty"`
	// Salt is random, so that nobody can guess an erased opening by trying.
	Salt string `json:"salt"`
	// SettledBy is the name of whoever decided, if the leaf has a by.
	SettledBy string `json:"settled_by,omitempty"`
	Tenant    string `json:"tenant_id"`
}

// canonical returns a leaf or an opening in canonical JSON (RFC 8785).
func canonical[T Artifact | Opening](v *T) []byte {
	plain, err := json.Marshal(v)
	if err == nil {
		plain, err = canon.Canonicalize(plain, canon.JCS)
	}
	if err != nil {
		panic(fmt.Sprintf("evidence: %T has no canonical form: %v", *v, err)) // without it nothing may be recorded
	}
	return plain
}

// Commit returns the commitment to the bytes of an opening, which has its own salt: the SHA-256
// of "semel-opening-1", a line feed and the bytes.
func Commit(opening []byte) [sha256.Size]byte {
	var stack [512]byte
	b := append(stack[:0], commitPrefix...)
	return sha256.Sum256(append(b, opening...))
}

const commitPrefix = "semel-opening-1\n"

// ParseArtifact reads a leaf, of this version or an earlier one.
func ParseArtifact(leaf []byte) (Artifact, error) {
	var a Artifact
	if err := json.Unmarshal(leaf, &a); err != nil {
		return a, fmt.Errorf("evidence: the leaf is no artifact: %w", err)
	}
	if a.Version < 1 || a.Version > Version {
		return a, fmt.Errorf("evidence: the artifact has version %d, and this program knows those up to %d: use the program that wrote it, or a later one", a.Version, Version)
	}
	return a, nil
}

// ParseOpening reads an opening and checks it against its leaf.
func ParseOpening(leaf Artifact, opening []byte) (Opening, error) {
	var o Opening
	sum := Commit(opening)
	if hex.EncodeToString(sum[:]) != leaf.Commitment {
		return o, fmt.Errorf("evidence: the opening is not the one that artifact %s commits to", leaf.ID)
	}
	if err := json.Unmarshal(opening, &o); err != nil {
		return o, fmt.Errorf("evidence: the opening is no object: %w", err)
	}
	return o, nil
}

// OutcomeDigest returns the digest for Opening.OutcomeSHA256: a SHA-256 over the disposition,
// whether the result is still there, and the length-framed result, failure code and failure
// message. It is zero without an outcome.
func OutcomeDigest(rec *semel.Record) (sum [sha256.Size]byte) {
	if !hasOutcome(rec) {
		return sum
	}
	kept := byte(1)
	if rec.Result.Tombstone {
		kept = 0
	}
	head := append([]byte("semel-outcome-1\n"), byte(rec.Disposition), kept)
	h := sha256.New()
	h.Write(binary.AppendUvarint(head, uint64(len(rec.Result.Data))))
	h.Write(rec.Result.Data)
	if rec.Failure != nil {
		h.Write(canon.Frame(canon.Frame(nil, rec.Failure.Code), rec.Failure.Message))
	}
	h.Sum(sum[:0])
	return sum
}
