package httpsig

import (
	"errors"
	"fmt"
)

// Code says why a signature is refused. Codes don't change.
type Code string

// The codes. Trying again can only help after KeyUnavailable: an inbox answers it with 503,
// OtherSigner and KeyGone with 403, and all others with 401.
const (
	SignatureMissing   Code = "signature_missing"
	SignatureMalformed Code = "signature_malformed" // it can't be read
	SignatureWeak      Code = "signature_weak"      // it leaves out something that it must cover
	SignatureWrong     Code = "signature_wrong"
	AlgorithmRefused   Code = "algorithm_refused" // unknown, weak, or for another kind of key
	DigestWrong        Code = "digest_wrong"      // the body isn't the one that was signed
	TooOld             Code = "too_old"
	TooNew             Code = "too_new"
	KeyGone            Code = "key_gone"    // its server says that there is no such key
	KeyRefused         Code = "key_refused" // fetching it isn't allowed, or its documents are wrong
	KeyUnavailable     Code = "key_unavailable"
	OtherSigner        Code = "other_signer" // none of the signatures can be from the actor
)

// Error says why a signature is refused.
type Error struct {
	Code Code
	Err  error
}

// Error returns one line, without keys, signatures or bodies.
func (e *Error) Error() string { return string(e.Code) + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

func refuse(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Err: fmt.Errorf(format, args...)}
}

// hasCode reports whether an error is an [*Error] with the code.
func hasCode(err error, code Code) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Code == code
}
