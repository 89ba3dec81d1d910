package semel

import (
	"strconv"
	"time"

	"github.com/semelhq/semel/store"
)

// Call is one delivery.
type Call struct {
	// Tenant, Operation and Key, with the principal scope, are the identity.
	// Key and Operation are required; see [Call.ID].
	Tenant    string
	Operation string
	Key       string
	// Principal is the verified identity of who acts. It is part of the
	// identity of the call unless the operation shares its keys.
	Principal string
	// Scope narrows the principal scope of the identity, up to 128 bytes: calls with
	// different scopes are independent, even if the operation shares its keys. Use it
	// for what a caller says beside its key, such as the account it acts for.
	Scope string
	// BoundTo binds the call to an unverified caller, by something that the caller has
	// shown, such as a digest of its credential, up to 256 bytes. It is kept in the
	// record and isn't part of the identity: a delivery with another value, or none,
	// isn't executed, and gets [OtherCaller] and nothing else, or [InFlight] while an
	// attempt runs.
	//
	// The binding lasts as long as something may have happened. If every attempt was
	// aborted or rejected and no effect is in the ledger, a delivery with another value
	// executes: it begins a new call, of which only the fence continues. A refusal is then
	// kept for the caller who got it, in a record of its own. Of an aborted call only a
	// tombstone stays, for a minute, and a held one is let go at the end of its window, unless
	// the operation is Financial.
	//
	// Use it for keys that can't be guessed. A retry with a renewed credential then
	// doesn't execute again, and somebody who got hold of the key gets no answer.
	// Leave it empty if Principal is verified.
	BoundTo string
	// Unproved says that anybody could have written what names the caller here, such as the
	// id of an access key whose signature you can't verify. It tells callers apart, so that
	// a retry doesn't execute again, and proves nothing: in place of an outcome, or anything
	// else that is recorded, the delivery gets [OtherCaller].
	Unproved bool
	// Network is where an unverified caller calls from, if there is BoundTo: the address as
	// one of IPv6, without what one subscriber chooses. Callers of one network share its
	// turns at a key; see [Internal.Turn]. The zero value is a network like any other.
	Network [16]byte
	// Door names the way by which the call came in, such as "http", up to 32 bytes.
	// Leave it empty if your program calls the engine itself. A call belongs to the
	// door that it came through first: a delivery through another gets [OtherDoor]
	// and nothing else, since another door may not be able to read what the first
	// recorded, or may have other rules for who writes it.
	Door string
	// Sequence is the number of this call among those of its key, from 1; zero for an
	// operation that isn't sequenced. See Operation.Sequenced.
	Sequence uint64
	// Fingerprint is compared with that of the first delivery. The zero value
	// equals only itself.
	Fingerprint Fingerprint
	// SamePayload reports whether a fingerprint that was made in another way, such as by an
	// earlier version, is of the payload of this delivery. It is asked only if Fingerprint
	// and that of the first delivery differ, perhaps several times, before the delivery is
	// answered or executes. Optional.
	SamePayload func(first Fingerprint) bool
	// Holder names who executes the call if this delivery does, up to 256 bytes.
	// It is kept as [Record].Holder and isn't part of the identity. Defaults to
	// Options.Node. A door gives each delivery its own, so that it can recognise a
	// claim whose answer was lost.
	Holder string
	// Payload is what the call was asked for, as it came. It is kept with the record of a
	// new call if Operation.KeepPayload says so, and has no other meaning: what is compared
	// is Fingerprint.
	Payload []byte
	// Attributes are kept with the record of a call that is new. At most
	// [MaxAttributes].
	Attributes store.Attributes
	// Confirm is the confirmation token, if the caller has one, and StepUp the
	// further proof that Operation.Confirmation may require.
	Confirm string
	StepUp  string
	// FirstSent is when the caller first sent this call, if it says so.
	FirstSent time.Time
	// Window is how long the outcome is kept if this delivery executes, in place of
	// Operation.Window, within the same bounds. Zero: as the operation says.
	Window time.Duration
	// Wait is how long to wait for the outcome if the call is in flight. It is
	// bounded by Operation.MaxWait. Zero: as the operation says.
	Wait time.Duration

	turn turn
}

// Answer is what a delivery got.
type Answer struct {
	Decision Decision
	// Record is what is stored about the call. For Execute it is the claim, or
	// in the answer of Do the outcome. For TooLate, OtherCaller, OtherDoor, a new
	// call that is Throttled and one of another caller that is InFlight it has only the
	// identity, for Superseded also the newest number, and for SequenceGap the next one;
	// without a decision it is nil. It may be shared with the store: don't change it.
	Record *Record
	// Attempt is the right to execute. It is set by Begin for Execute only.
	Attempt *Attempt
	// Challenge is what the caller needs to confirm the call, if the error is
	// [CodeConfirmationRequired] and a new token was made.
	Challenge *Challenge
	// RetryAfter is when to try again, for InFlight, SequenceGap, Held and Throttled.
	RetryAfter time.Duration
	// Limit is the limit that throttled the delivery, for Throttled.
	Limit Limit
}

func (a *Answer) throttle(delay time.Duration, by Limit) {
	a.Decision, a.RetryAfter, a.Limit = Throttled, delay, by
}

// Err is the answer as an error: nil for Execute and for the replay of a kept,
// completed result; otherwise an [Error] with the code that says why there is no
// result.
func (a *Answer) Err() error {
	switch a.Decision {
	case Conflict:
		return &Error{Code: CodeConflict, Message: "the key was used with another payload"}
	case InFlight:
		return &Error{Code: CodeInFlight, Message: "the first delivery is still running", RetryAfter: a.RetryAfter}
	case Held:
		return &Error{Code: CodeHeld, Message: a.Record.HeldReason, RetryAfter: a.RetryAfter}
	case TooLate:
		return &Error{Code: CodeTooLate, Message: "the call was first sent before the window that is kept"}
	case OtherCaller:
		return &Error{Code: CodeOtherCaller, Message: "the key was used by a caller with another credential"}
	case OtherDoor:
		return &Error{Code: CodeOtherDoor, Message: "the key was used through another door of this service"}
	case Superseded:
		return &Error{Code: CodeSuperseded, Message: "number " + strconv.FormatUint(a.Record.Sequence, 10) + " of the sequence was begun, so none below it begins any more"}
	case SequenceGap:
		return &Error{Code: CodeSequenceGap, Message: "number " + strconv.FormatUint(a.Record.Sequence, 10) + " of the sequence comes next", RetryAfter: a.RetryAfter}
	case Throttled:
		return &Error{Code: CodeThrottled, Message: a.Limit.message(), RetryAfter: a.RetryAfter}
	}
	if a.Record == nil {
		return nil
	}
	return outcomeError(a.Record, nil)
}

// outcomeError is a record's outcome as an error. cause is the handler's own error, if
// this process ran it.
func outcomeError(rec *Record, cause error) error {
	switch rec.State {
	case Failed:
		e := &Error{Code: Code(rec.Disposition.String()), Err: cause}
		if rec.Disposition == DispositionAbandoned {
			e.Code = CodeAborted
		}
		if rec.Failure != nil && cause == nil {
			e.Message = rec.Failure.Message
		}
		return e
	case Completed:
		if rec.Result.Tombstone {
			return &Error{Code: CodeResultNotKept, Message: "the call ran, but its result was not kept"}
		}
	}
	return nil
}
