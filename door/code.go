package door

import "github.com/semelhq/semel"

// The codes of refusals that doors make themselves. For the engine's, see [semel.Codes].
const (
	// CodeKeyMissing: the route needs a key, but the request has none.
	CodeKeyMissing semel.Code = "key_missing"
	// CodeKeyInvalid: the request doesn't have exactly one well-formed key.
	CodeKeyInvalid semel.Code = "key_invalid"
	// CodeUnidentified: the caller sent no credential, so their keys can't be told apart
	// from other people's.
	CodeUnidentified semel.Code = "unidentified"
	// CodeBodyUnreadable: the body did not arrive whole.
	CodeBodyUnreadable semel.Code = "body_unreadable"
	// CodeBodyTooLarge: the body is larger than the route accepts.
	CodeBodyTooLarge semel.Code = "body_too_large"
	// CodeAnswerTooLarge: the answer can't be recorded with its transaction's rows, so those
	// were rolled back.
	CodeAnswerTooLarge semel.Code = "answer_too_large"

	// CodeConnectionNames: the Connection header names a header that must arrive.
	CodeConnectionNames semel.Code = "connection_names_header"
	// CodeAmbiguousFraming: the end of the request can be read in two ways.
	CodeAmbiguousFraming semel.Code = "ambiguous_framing"
	// CodeAmbiguousTarget: the target can be read in two ways.
	CodeAmbiguousTarget semel.Code = "ambiguous_target"
	// CodeMethodSpelling: the method is known, but isn't in capitals.
	CodeMethodSpelling semel.Code = "method_spelling"
	// CodeNotGuardable: the request can't be guarded, and the route does not let it pass
	// unguarded.
	CodeNotGuardable semel.Code = "not_guardable"
	// CodeUnreachable: there was no connection to the upstream; nothing was sent.
	CodeUnreachable semel.Code = "upstream_unreachable"

	// CodeUnauthorized: the door doesn't know who is calling.
	CodeUnauthorized semel.Code = "unauthorized"
	// CodeUnknownHost: the request came under a name that doesn't belong to the listener.
	CodeUnknownHost semel.Code = "unknown_host"
	// CodeNotAcceptable: the answer has no form that the caller accepts.
	CodeNotAcceptable semel.Code = "not_acceptable"
	// CodeUnsupportedMedia: the body isn't JSON.
	CodeUnsupportedMedia semel.Code = "unsupported_media_type"
	// CodeMethodNotAllowed: the address exists, but not for this method.
	CodeMethodNotAllowed semel.Code = "method_not_allowed"
	// CodeTooLarge: the body is larger than the server accepts.
	CodeTooLarge semel.Code = "too_large"

	// CodeMandateExpired: the mandate that the call needs has expired, or isn't the user's.
	CodeMandateExpired semel.Code = "mandate_expired"
	// CodeVersionDiffers: the version that the caller has read isn't the newest any more.
	CodeVersionDiffers semel.Code = "version_differs"

	// CodeOverloaded: a budget is used up: the server's, the tenant's or the caller's.
	CodeOverloaded semel.Code = "overloaded"
	// CodeOverBudget: the body alone exceeds the whole budget.
	CodeOverBudget semel.Code = "over_budget"
	// CodeBodyTooSlow: the body came more slowly than the server's pace allows.
	CodeBodyTooSlow semel.Code = "body_too_slow"
	// CodeInternal: the server has a fault; what happened is unknown.
	CodeInternal semel.Code = "internal"
)
