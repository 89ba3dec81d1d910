package store

import "time"

// Code is the stable name of an error. The same word appears in Go, in JSON, in
// problem documents, in metrics and in logs.
type Code string

// Error is the one error type of the engine. Compare with errors.Is against the sentinels,
// which match by code, or get at its fields with errors.AsType. Payloads, keys and principals
// never appear in its text.
type Error struct {
	// Code is the stable name.
	Code Code
	// Message is the text for people. It may be empty.
	Message string
	// RetryAfter is when to try again; zero if that is pointless or unknown.
	RetryAfter time.Duration
	// Action is what to do next, if the error is a refusal by a service; empty otherwise.
	Action Action
	// Err is the cause, if any.
	Err error
}

// Action is the step that a program or a model takes after a refusal.
type Action string

// The actions.
const (
	ActionWait       Action = "wait"        // send the same again, later
	ActionVerify     Action = "verify"      // find out what happened before anything else
	ActionFixRequest Action = "fix_request" // correct the request
	ActionNewKey     Action = "new_key"     // what differs is another call: give it a key of its own
	ActionStop       Action = "stop"        // nothing helps
)

// Error returns the code, the message and the cause.
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

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether target is an [Error] with the same code.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code
}

// The codes that this package and stores use. The engine has more.
const (
	CodeInvalidCall      Code = "invalid_call"
	CodeNotFound         Code = "not_found"
	CodeUnsupported      Code = "unsupported"
	CodeStoreUnavailable Code = "store_unavailable"
)

// ErrNotFound is what [Store.Get] returns for an identity without a record.
var ErrNotFound error = &Error{Code: CodeNotFound}
