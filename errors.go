package semel

import (
	"errors"
	"time"
)

// Code is the stable name of an error. The same word appears in Go, in JSON, in
// problem documents, in metrics and in logs.
type Code string

// The codes. A replayed success is no error; everything else that keeps a
// delivery from getting a result is one.
const (
	// CodeInvalidCall: the call itself is malformed. Nothing was looked up.
	CodeInvalidCall Code = "invalid_call"
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
	// CodeExpired: the call was first sent before the window that is kept.
	CodeExpired Code = "expired"
	// CodeThrottled: too many duplicates of one record or by one principal.
	CodeThrottled Code = "throttled"
	// CodeOtherCaller: the key was used by a caller with another credential.
	// Nothing was executed.
	CodeOtherCaller Code = "other_caller"
	// CodeOtherDoor: the key was used through another door. Nothing was executed.
	CodeOtherDoor Code = "other_door"
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
	// CodeResultNotKept: the call ran, but its result was too large, streamed or
	// otherwise not kept. It does not run again.
	CodeResultNotKept Code = "result_not_kept"
	// CodeLeaseLost: this holder no longer holds the record.
	CodeLeaseLost Code = "lease_lost"
	// CodeAlreadyEnded: the attempt has ended in another way.
	CodeAlreadyEnded Code = "already_ended"
	// CodeIllegalTransition: the state machine has no such step.
	CodeIllegalTransition Code = "illegal_transition"
	// CodeConfirmationRequired: the call is to be confirmed first. Nothing was
	// executed.
	CodeConfirmationRequired Code = "confirmation_required"
	// CodeConfirmationRefused: the confirmation token or the further proof is wrong,
	// used up or late. Nothing was executed.
	CodeConfirmationRefused Code = "confirmation_refused"
	// CodeEffectUnknown: an effect was started earlier and its result is not
	// known, so it may not be called again.
	CodeEffectUnknown Code = "effect_unknown"
	// CodeStoreUnavailable: the store did not answer. Nothing was executed.
	CodeStoreUnavailable Code = "store_unavailable"
	// CodeNotFound: there is no such record.
	CodeNotFound Code = "not_found"
	// CodeUnsupported: the store can't do what was asked for.
	CodeUnsupported Code = "unsupported"
	// CodeClosed: the engine is closed.
	CodeClosed Code = "closed"
)

// Error is the one error type of the engine. Compare with errors.Is against the
// sentinels, which match by code, or take it apart with errors.AsType.
// Payloads, keys and principals never appear in its text.
type Error struct {
	// Code is the stable name.
	Code Code
	// Message is for people. It may be empty.
	Message string
	// RetryAfter is when trying again makes sense; zero when it does not or
	// when nothing is known.
	RetryAfter time.Duration
	// Err is the cause, if any.
	Err error
}

// Error gives the code, the message and the cause.
func (e *Error) Error() string {
	s := "semel: " + string(e.Code)
	if e.Message != "" {
		s += ": " + e.Message
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether target is an [Error] with the same code.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code
}

// The sentinels that callers ask for most. Any other code is matched by
// errors.Is(err, &semel.Error{Code: ...}).
var (
	ErrConflict  error = &Error{Code: CodeConflict}
	ErrInFlight  error = &Error{Code: CodeInFlight}
	ErrHeld      error = &Error{Code: CodeHeld}
	ErrLeaseLost error = &Error{Code: CodeLeaseLost}
	ErrUnknown   error = &Error{Code: CodeUnknown}
	// ErrNotFound is what [Store.Get] returns for an identity without a record.
	ErrNotFound error = &Error{Code: CodeNotFound}
)

// verdict marks what a handler's error says about effects.
type verdict struct {
	disposition Disposition // empty: unknown
	code        string
	err         error
}

func (v *verdict) Error() string { return v.err.Error() }
func (v *verdict) Unwrap() error { return v.err }

// Rejected marks err as a final refusal: the attempt ends as rejected and every
// duplicate gets the same refusal. The code is the caller's own short word for
// it and is kept with the record, as is err's text. Inside [Effect] it says that
// the provider refused for good.
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

// verdictOf finds the mark that a handler put on its error.
func verdictOf(err error) (*verdict, bool) { return errors.AsType[*verdict](err) }
