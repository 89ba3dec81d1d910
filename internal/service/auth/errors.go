package auth

import "errors"

// The errors of Authenticate. Compare with errors.Is.
var (
	// ErrNoCredential: the request has no credential of a configured method.
	ErrNoCredential = errors.New("no credential")
	// ErrBadCredential: it has one that is unknown, expired, forged, ambiguous or not for
	// this server.
	ErrBadCredential = errors.New("bad credential")
	// ErrUnavailable: it has one that can't be checked now, because the issuer's keys
	// can't be fetched. It makes sense to ask again later.
	ErrUnavailable = errors.New("credentials can't be checked")
)

// Error says why a caller was not identified. Its text never quotes a credential, so you
// may log it. It unwraps to one of the sentinels.
type Error struct {
	// Reason is for the operator. It may be empty.
	Reason string
	// Challenge is the WWW-Authenticate of the 401 (RFC 9110 section 11.6.1, RFC 6750
	// section 3). It doesn't reveal the reason.
	Challenge string
	// Detail is what the caller may be told, in whole sentences; empty if that is no more
	// than the challenge says.
	Detail string

	kind error
}

// Error gives the kind and the reason.
func (e *Error) Error() string {
	if e.Reason == "" {
		return e.kind.Error()
	}
	return e.kind.Error() + ": " + e.Reason
}

// Unwrap returns [ErrNoCredential], [ErrBadCredential] or [ErrUnavailable].
func (e *Error) Unwrap() error { return e.kind }

const baseChallenge = `Bearer realm="semel"`

// Challenge is the WWW-Authenticate for an error of Authenticate, or for any other error.
func Challenge(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Challenge
	}
	return baseChallenge
}

// The codes of RFC 6750 section 3.1 that are used.
const (
	invalidRequest = "invalid_request"
	invalidToken   = "invalid_token"
)

var errNone error = &Error{kind: ErrNoCredential, Challenge: baseChallenge}

var errNoKeys error = &Error{kind: ErrUnavailable, Reason: "the keys of the token's issuer can't be fetched", Challenge: baseChallenge}

// errExpired is for a token that was good once. To know that helps nobody but its bearer,
// who renews it.
var errExpired error = &Error{
	kind: ErrBadCredential, Reason: "the token has expired",
	Challenge: baseChallenge + `, error="` + invalidToken + `", error_description="The token has expired"`,
	Detail:    "The token has expired. Renew it, and send the same request again.",
}

func bad(code, reason string) error {
	return &Error{kind: ErrBadCredential, Reason: reason, Challenge: baseChallenge + `, error="` + code + `"`}
}
