// Package httpsig verifies HTTP signatures.
package httpsig

// Signer is who signed a request.
type Signer struct {
	Actor, KeyID string
	Form         string
}

// Code is the stable name of a reason.
type Code string

// The codes.
const (
	CodeMissing        Code = "signature_missing"
	CodeKeyUnavailable Code = "key_unavailable"
)

// Error is why.
type Error struct {
	Code Code
	Err  error
}

// Error is one line.
func (e *Error) Error() string { return string(e.Code) + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }
