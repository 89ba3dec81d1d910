package auth

import "errors"

// What Authenticate says of requests that it can't tell the sender of. Compare
// with errors.Is.
var (
	// ErrNoCredential: there is nothing that a configured method looks at.
	ErrNoCredential = errors.New("no credential")
	// ErrBadCredential: there is, but it is unknown, expired, forged, ambiguous
	// or not for this server.
	ErrBadCredential = errors.New("bad credential")
	// ErrUnavailable: there is, and it can't be judged, because the keys of its
	// issuer can't be fetched. Asking again later makes sense.
	ErrUnavailable = errors.New("credentials can't be checked")
)

// Error is why a caller was not identified. Its text never has any part of a
// credential, so it may be logged. It unwraps to one of the sentinels.
type Error struct {
	// Reason is for the operator. It may be empty.
	Reason string
	// Challenge is the WWW-Authenticate of the 401 (RFC 9110 section 11.6.1,
	// RFC 6750 section 3). It does not tell the reason.
	Challenge string

	kind error
}

// Error gives the kind and the reason.
func (e *Error) Error() string {
	if e.Reason == "" {
		return e.kind.Error()
	}
	return e.kind.Error() + ": " + e.Reason
}

// Unwrap gives [ErrNoCredential], [ErrBadCredential] or [ErrUnavailable].
func (e *Error) Unwrap() error { return e.kind }

const baseChallenge = `Bearer realm="semel"`

// Challenge is the WWW-Authenticate that belongs to an error of Authenticate. It
// has one for every other error too.
func Challenge(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Challenge
	}
	return baseChallenge
}

// The codes of RFC 6750 section 3.1 that occur.
const (
	invalidRequest = "invalid_request"
	invalidToken   = "invalid_token"
)

var errNone error = &Error{kind: ErrNoCredential, Challenge: baseChallenge}

var errNoKeys error = &Error{kind: ErrUnavailable, Reason: "the keys of the token's issuer can't be fetched", Challenge: baseChallenge}

func bad(code, reason string) error {
	return &Error{kind: ErrBadCredential, Reason: reason, Challenge: baseChallenge + `, error="` + code + `"`}
}
