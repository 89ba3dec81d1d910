package semel

import (
	"errors"

	"github.com/semelhq/semel/store"
)

// The codes. A replayed success isn't an error; an answer without a result is.
const (
	// CodeInvalidCall: the call itself is malformed. Nothing was looked up.
	CodeInvalidCall = store.CodeInvalidCall
	// CodeUnknownOperation: no such operation is registered.
	CodeUnknownOperation Code = "unknown_operation"
	// CodeInvalidOperation: an operation's declaration is contradictory or unsafe.
	CodeInvalidOperation Code = "invalid_operation"
	// CodeConflict: the key was used with another payload.
	CodeConflict Code = "conflict"
	// CodeInFlight: the first delivery is still running.
	CodeInFlight Code = "in_flight"
	// CodeHeld: the holder is gone, an effect is possible, and nobody may run
	// the call again until it is settled.
	CodeHeld Code = "held"
	// CodeTooLate: the call was first sent so long ago that its outcome may have been
	// forgotten.
	CodeTooLate Code = "too_late"
	// CodeThrottled: too many duplicates of one record or by one principal, or a new
	// call by a caller over its quota. Nothing was executed.
	CodeThrottled Code = "throttled"
	// CodeOtherCaller: the key was used by a caller with another credential.
	// Nothing was executed.
	CodeOtherCaller Code = "other_caller"
	// CodeOtherDoor: the key was used through another door. Nothing was executed.
	CodeOtherDoor Code = "other_door"
	// CodeSuperseded: a later number of the sequence was begun. Nothing was executed.
	CodeSuperseded Code = "superseded"
	// CodeSequenceGap: a number that comes before this one in the sequence has no outcome yet.
	// Nothing was executed.
	CodeSequenceGap Code = "sequence_gap"
	// CodeForbidden: the caller may not begin the call, or see the stored answer.
	CodeForbidden Code = "forbidden"
	// CodeRejected: the call was refused for good.
	CodeRejected Code = "rejected"
	// CodeFailed: the handler failed.
	CodeFailed Code = "failed"
	// CodeAborted: the attempt ended with proof that no effect happened.
	CodeAborted Code = "aborted"
	// CodeUnknown: an effect or the outcome may or may not have happened.
	CodeUnknown Code = "unknown"
	// CodeResultNotKept: the call has ended, and its result was too large, streamed or
	// otherwise not kept, or its window is over. It does not run again.
	CodeResultNotKept Code = "result_not_kept"
	// CodeLeaseLost: this holder no longer holds the record.
	CodeLeaseLost Code = "lease_lost"
	// CodeAlreadyEnded: the attempt has ended in another way.
	CodeAlreadyEnded Code = "already_ended"
	// CodeIllegalTransition: the state machine has no such step.
	CodeIllegalTransition Code = "illegal_transition"
	// CodeConfirmationRequired: the call must be confirmed first. Nothing was executed.
	CodeConfirmationRequired Code = "confirmation_required"
	// CodeConfirmationRefused: the confirmation token or the further proof is wrong,
	// used up or expired. Nothing was executed.
	CodeConfirmationRefused Code = "confirmation_refused"
	// CodeEffectUnknown: an effect was started earlier and its result is unknown, so
	// it may not be called again.
	CodeEffectUnknown Code = "effect_unknown"
	// CodeStoreUnavailable: the store did not answer. Nothing was executed.
	CodeStoreUnavailable = store.CodeStoreUnavailable
	// CodeNotFound: there is no such record.
	CodeNotFound = store.CodeNotFound
	// CodeUnsupported: the store, or this execution, can't do that.
	CodeUnsupported = store.CodeUnsupported
	// CodeClosed: the engine is closed.
	CodeClosed Code = "closed"
)

// Codes lists the codes of the engine and its stores. Doors have further ones.
func Codes() []Code {
	return []Code{
		CodeInvalidCall, CodeUnknownOperation, CodeInvalidOperation, CodeConflict, CodeInFlight, CodeHeld, CodeTooLate, CodeThrottled, CodeOtherCaller,
		CodeOtherDoor, CodeSuperseded, CodeSequenceGap, CodeForbidden, CodeRejected, CodeFailed, CodeAborted, CodeUnknown, CodeResultNotKept, CodeLeaseLost, CodeAlreadyEnded,
		CodeIllegalTransition, CodeConfirmationRequired, CodeConfirmationRefused, CodeEffectUnknown, CodeStoreUnavailable, CodeNotFound, CodeUnsupported,
		CodeClosed,
	}
}

// The sentinels that callers check most often. Match any other code by
// errors.Is(err, &semel.Error{Code: ...}).
var (
	ErrConflict  error = &Error{Code: CodeConflict}
	ErrInFlight  error = &Error{Code: CodeInFlight}
	ErrHeld      error = &Error{Code: CodeHeld}
	ErrLeaseLost error = &Error{Code: CodeLeaseLost}
	ErrUnknown   error = &Error{Code: CodeUnknown}
	// ErrNotFound is what [store.Store.Get] returns for an identity without a record.
	ErrNotFound = store.ErrNotFound
)

// verdict marks what a handler's error says about effects.
type verdict struct {
	disposition store.Disposition // empty: unknown
	code        string
	err         error
}

func (v *verdict) Error() string { return v.err.Error() }
func (v *verdict) Unwrap() error { return v.err }

// Rejected marks err as a final refusal: the attempt ends as rejected and every
// duplicate gets the same refusal. Choose a short code for it; the record holds the code and
// err's text. Inside [Effect] it says that the provider refused for good.
func Rejected(code string, err error) error {
	return &verdict{disposition: DispositionRejected, code: code, err: err}
}

// Aborted marks err as proof that no effect happened: the next delivery runs
// again. Inside [Effect] it says that this effect did not happen. Use it only
// with proof, such as a connection that was never made; a timeout proves nothing.
func Aborted(err error) error {
	return &verdict{disposition: DispositionAborted, err: err}
}

// Unknown marks err as "an effect may have happened": the record is held until
// it is settled.
func Unknown(err error) error {
	return &verdict{err: err}
}

// Abandoned marks err as "whoever did the work gave no conclusive answer": the attempt ends as
// by [Attempt.Abandon], so it may run again if the ledger or Operation.OnAbandoned allows
// that, and is held otherwise.
func Abandoned(err error) error {
	return &verdict{disposition: DispositionAbandoned, err: err}
}

// Failure marks err as a failure of the work: Semel records it, and Operation.OnFailure
// decides what the next delivery gets. An error that has a mark keeps it, so you can mark
// whatever a function returns. Inside [Effect] it is the provider's own word that the effect
// failed, and a further attempt may try it again.
func Failure(err error) error {
	if _, marked := verdictOf(err); marked || err == nil {
		return err
	}
	return &verdict{disposition: DispositionFailed, err: err}
}

// verdictOf finds the mark that a handler put on its error.
func verdictOf(err error) (*verdict, bool) { return errors.AsType[*verdict](err) }
