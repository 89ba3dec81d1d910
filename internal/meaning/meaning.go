// Package meaning has the table of what each refusal code means to its caller, in words that
// fit any protocol. Package door, which explains the columns, offers it to the doors.
package meaning

import (
	"net/http"
	"time"

	"github.com/semelhq/semel/store"
)

// Row is the meaning of one code.
type Row struct {
	Code                         store.Code
	Status                       int
	Title, Meaning, Action, Hint string
	Retry                        time.Duration
	Effect                       string
	Foreign                      bool
	Do                           store.Action
}

// The table's names for the actions.
const (
	Wait       = store.ActionWait
	Verify     = store.ActionVerify
	FixRequest = store.ActionFixRequest
	NewKey     = store.ActionNewKey
	Stop       = store.ActionStop
)

// The effects: nothing was done, or something may have been.
const (
	None    = "none"
	Unknown = "unknown"
)

// Table has a row for each code, in the order in which a call can get them.
var Table = []Row{
	{
		Code: "unauthorized", Do: FixRequest, Effect: None, Status: http.StatusUnauthorized, Title: "Not authenticated",
		Meaning: "The server can't tell who is calling: the credential is missing, expired or not valid. Nothing was looked up.",
		Action:  "Send a valid credential.",
		Hint:    "Authorization: Bearer and a token of the server's configuration are one, for instance.",
	},
	{
		Code: "forbidden", Do: Stop, Effect: None, Status: http.StatusForbidden, Title: "Not allowed",
		Meaning: "The caller is known, but may not do or see this: they lack the role, ask for another tenant, or the operation doesn't give them the stored answer.",
		Action:  "Use an identity that may, or have the role added to this one.",
	},
	{
		Code: "unknown_host", Do: FixRequest, Effect: None, Status: http.StatusMisdirectedRequest, Title: "Unknown host",
		Meaning: "The request came to an address of this machine under a name that is not the listener's. A page in a browser can do that if its own name is pointed to this machine. Nothing was looked up.",
		Action:  "Use 127.0.0.1 or localhost. Behind a proxy on the same machine, add the names that it passes on to listen.hosts.",
	},
	{
		Code: "overloaded", Do: Wait, Effect: None, Status: http.StatusServiceUnavailable, Title: "Too much in flight",
		Meaning: "The server has reached its limit of requests, or of bytes in flight, or other requests of the tenant or the caller have reached theirs. No guarded call was begun.",
		Action:  "Send the same request again later.",
		Hint:    "Retry-After says when. Status 429 says that it is the limit of the tenant or the caller.",
	},
	{
		Code: "over_budget", Do: FixRequest, Effect: None, Status: http.StatusRequestEntityTooLarge, Title: "Body larger than a budget",
		Meaning: "The body is larger than everything that the server, a tenant or a caller may have in flight. No guarded call was begun.",
		Action:  "Send less, or have total_bytes, tenant_bytes or principal_bytes under limits raised.",
	},
	{
		Code: "body_too_slow", Do: Wait, Effect: None, Status: http.StatusRequestTimeout, Title: "Body too slow",
		Meaning: "The body came more slowly than limits.rate allows, or stopped for limits.read_timeout. No guarded call was begun.",
		Action:  "Send the same request again.",
	},
	{
		Code: "too_large", Do: FixRequest, Effect: None, Status: http.StatusRequestEntityTooLarge, Title: "Body too large",
		Meaning: "The body is larger than the server accepts. Nothing was executed.",
		Action:  "Send less, or have the limit raised. Keep large results elsewhere and complete with a reference to them.",
	},
	{
		Code: "not_acceptable", Do: FixRequest, Status: http.StatusNotAcceptable, Title: "Not acceptable",
		Meaning: "The server can't answer in a form that the Accept header allows.",
		Action:  "Accept application/json and application/problem+json.",
	},
	{
		Code: "unsupported_media_type", Do: FixRequest, Effect: None, Status: http.StatusUnsupportedMediaType, Title: "Not JSON",
		Meaning: "The Content-Type says that the body is not JSON, or the Content-Encoding that it is compressed. Nothing was executed.",
		Action:  "Send JSON with Content-Type: application/json and without a Content-Encoding. With curl, use --json instead of -d.",
	},
	{
		Code: "method_not_allowed", Do: FixRequest, Effect: None, Status: http.StatusMethodNotAllowed, Title: "Method not allowed",
		Meaning: "The address exists, but not for this method.",
		Action:  "Use a method that the Allow header lists.",
	},
	{
		Code: "invalid_call", Do: FixRequest, Effect: None, Status: http.StatusBadRequest, Title: "Invalid request",
		Meaning: "The request is malformed: not strict JSON, an unknown or missing member, a wrong type, a bad key. Nothing was looked up and nothing was executed.",
		Action:  "Correct it. Repeating the same request gives the same answer.",
		Hint:    "The problem's errors name what is wrong.",
	},
	{
		Code: "unknown_operation", Do: FixRequest, Effect: None, Status: http.StatusNotFound, Title: "Unknown operation",
		Meaning: "No operation of that name can begin here: none is declared, or it belongs to another door.",
		Action:  "Check the name and its version, send the call to its own door, or declare the operation.",
		Hint:    "GET /v1/operations lists all operations.",
	},
	{
		Code: "invalid_operation", Do: Stop, Status: http.StatusBadRequest, Title: "Invalid operation",
		Meaning: "The declaration of an operation is contradictory or unsafe. The configuration was not accepted.",
		Action:  "Correct the fields that the message names.",
	},
	{
		Code: "conflict", Do: NewKey, Effect: None, Status: http.StatusUnprocessableEntity, Title: "Key used with another payload",
		Meaning: "This key was used before with another payload. Nothing was executed, and the other outcome is not shown.",
		Action:  "Send the first payload unchanged, or this one with a new key.",
		Foreign: true,
	},
	{
		Code: "in_flight", Do: Wait, Effect: Unknown, Status: http.StatusConflict, Title: "In flight",
		Meaning: "The first delivery of this call is still being executed. Nothing was executed for this one.",
		Action:  "Ask again later.",
		Hint:    "Retry-After says when. Prefer: wait=N waits for the outcome.",
	},
	{
		Code: "held", Do: Verify, Effect: Unknown, Status: http.StatusConflict, Title: "Held: outcome unknown",
		Meaning: "The call was begun, and nobody knows whether its work was done: the process died or panicked, the upstream broke off or took too long, or the handler said that it doesn't know. The record says which. The call isn't executed again until somebody settles it.",
		Action:  "Read why it is held with 'semel records get', find out what happened, then settle or release the record. Callers ask again later.",
		Retry:   time.Second,
	},
	{
		Code: "other_door", Do: NewKey, Effect: None, Status: http.StatusConflict, Title: "Key used elsewhere",
		Meaning: "The key was used before through another door of this service, such as a route, whose calls and answers are not this one's. Nothing was executed, and nothing is shown.",
		Action:  "Send the call where it was sent first, or this one with a new key.",
		Foreign: true,
	},
	{
		Code: "sequence_gap", Do: Wait, Effect: None, Status: http.StatusConflict, Title: "Sequence gap",
		Meaning: "The call has a number in a sequence without gaps, and a number before it has no outcome yet. Nothing was executed.",
		Action:  "Send the number that comes next first, then this one again.",
		Hint:    "expected_sequence is the number that comes next.",
		Retry:   time.Second,
		Foreign: true,
	},
	{
		Code: "superseded", Do: Verify, Status: http.StatusConflict, Title: "Superseded",
		Meaning: "The call has a number in a sequence, and a call with a later number began before this one came. Nothing was executed, and it won't be.",
		Action:  "Read the state that the sequence is in. The member last_sequence is the newest number that may have had an effect; what is still to be changed needs a number above it.",
		Foreign: true,
	},
	{
		Code: "too_late", Do: Verify, Status: http.StatusPreconditionFailed, Title: "Too late",
		Meaning: "The call was first sent longer ago than outcomes are kept, so it may have been executed and forgotten. Nothing was executed.",
		Action:  "Find out what became of the call before sending it with a new key.",
		Foreign: true,
	},
	{
		Code: "other_caller", Do: Verify, Effect: None, Status: http.StatusConflict, Title: "Key used with another credential",
		Meaning: "The key looks as if nobody could guess it, and was used before by a caller with another credential, which nobody has verified, or the request is signed anew for each try, and its signature proves nothing here; and something may have happened. Nothing was executed, and nothing is shown of the first call.",
		Action:  "If you have renewed your credential, send the request or ask for its status with the first one, or find out in another way what happened; a new key makes another call. Callers who are verified by token, JWT, client certificate or trusted header are recognized after a renewal.",
	},
	{
		Code: "throttled", Do: Wait, Effect: None, Status: http.StatusTooManyRequests, Title: "Too many calls",
		Meaning: "The same call was repeated too often, or one principal repeats too much; or the call is new, and its caller or tenant has used up a quota of records or bytes. Nothing was executed.",
		Action:  "Repeat it later. Over a quota, calls that began before are still answered.",
		Hint:    "The member limit says which it is, and Retry-After when to repeat it.",
	},
	{
		Code: "confirmation_required", Do: FixRequest, Effect: None, Status: http.StatusPreconditionRequired, Title: "Confirmation required",
		Meaning: "The operation needs a confirmation before it runs. Nothing was executed.",
		Action:  "Have the person confirm, and send the same call again with the token of the challenge.",
		Hint:    "The problem has the challenge; send its token as the member confirm.",
	},
	{
		Code: "confirmation_refused", Do: FixRequest, Effect: None, Status: http.StatusForbidden, Title: "Confirmation refused",
		Meaning: "The confirmation token or the further proof is wrong, used, expired, or belongs to another call or caller. Nothing was executed.",
		Action:  "Send the call without a token to get a new one.",
	},
	{
		Code: "rejected", Do: FixRequest, Status: http.StatusUnprocessableEntity, Title: "Rejected",
		Meaning: "The call was refused for good when it was executed. Every duplicate gets the same refusal.",
		Action:  "Read the error for the reason. A corrected call needs a new key.",
	},
	{
		Code: "failed", Do: Verify, Status: http.StatusInternalServerError, Title: "Failed",
		Meaning: "The call was executed and failed. The operation's on_failure says whether a duplicate gets the same failure or runs again.",
		Action:  "Read the error for the reason. With on_failure: retry, send the same call again.",
	},
	{
		Code: "aborted", Do: Wait, Effect: None, Status: http.StatusConflict, Title: "Aborted",
		Meaning: "The attempt ended with proof that nothing happened.",
		Action:  "Send the same call again: it runs again.",
	},
	{
		Code: "unknown", Do: Wait, Effect: Unknown, Status: http.StatusServiceUnavailable, Title: "Result unknown",
		Meaning: "The store didn't say whether it kept what was written. It may have kept it, or may still do so.",
		Action:  "Send exactly the same request again: that finds out, and does no harm.",
		Retry:   time.Second,
	},
	{
		Code: "result_not_kept", Do: Verify, Status: http.StatusGone, Title: "Result not kept",
		Meaning: "The call has ended, and its result isn't kept: it was too large, streamed or not to be kept, or its window is over. It does not run again.",
		Action:  "Get the result from where the effect happened. Raise max_result, or window, if results should be kept.",
	},
	{
		Code: "lease_lost", Do: Stop, Effect: Unknown, Status: http.StatusConflict, Title: "Lease lost",
		Meaning: "This holder was silent for longer than its lease, or the record was held, settled or taken over. Another holder may be executing the call by now.",
		Action:  "Stop the work, make no further effect, and begin again with the same key to learn the outcome.",
	},
	{
		Code: "already_ended", Do: Stop, Status: http.StatusConflict, Title: "Already ended",
		Meaning: "The attempt, or the effect, was ended before in another way. The first end counts.",
		Action:  "Read the record. Repeating the first end is no error.",
	},
	{
		Code: "illegal_transition", Do: Verify, Status: http.StatusConflict, Title: "Not possible now",
		Meaning: "The record's state doesn't allow this: it isn't held, is still executing, or has changed meanwhile.",
		Action:  "Read the record again and decide anew.",
	},
	{
		Code: "effect_unknown", Do: Verify, Effect: Unknown, Status: http.StatusConflict, Title: "Effect unknown",
		Meaning: "The effect was started earlier and its result was not recorded, so it may have happened. It may not be called again.",
		Action:  "Ask the provider, with the effect's key, and settle the effect. If you asked here before, got no answer and made no call, ask with not_called: true.",
	},
	{
		Code: "not_found", Do: FixRequest, Status: http.StatusNotFound, Title: "Not found",
		Meaning: "There is no such record, execution or address, or it belongs to another caller.",
		Action:  "Check the name and the identity. Expired and purged records are gone.",
	},
	{
		Code: "unsupported", Do: Stop, Status: http.StatusNotImplemented, Title: "Not supported by the store",
		Meaning: "The store that the server runs on can't do this.",
		Action:  "Use a store that can.",
	},
	{
		Code: "store_unavailable", Do: Wait, Effect: None, Status: http.StatusServiceUnavailable, Title: "Store unavailable",
		Meaning: "The store didn't answer, so the server can't tell whether the call was delivered before. Nothing was executed.",
		Action:  "Send the same request again later.",
		Hint:    "Retry-After says when.",
		Retry:   time.Second,
	},
	{
		Code: "closed", Do: Wait, Effect: None, Status: http.StatusServiceUnavailable, Title: "Shutting down",
		Meaning: "The server is shutting down. Nothing was executed.",
		Action:  "Send the same request again; another node, or this one after its restart, answers.",
		Retry:   time.Second,
	},
	{
		Code: "internal", Do: Wait, Effect: Unknown, Status: http.StatusInternalServerError, Title: "Internal error",
		Meaning: "The server has a fault. It isn't known whether something was executed.",
		Action:  "Send the same request again with the same key. If it persists, report it with the server's log.",
	},
	{
		Code: "key_missing", Do: FixRequest, Effect: None, Status: http.StatusBadRequest, Title: "Key missing",
		Meaning: "The call needs a key and has none. Nothing was executed.",
		Action:  "Send a key that is unique to the call and the same in all its retries, such as a UUID.",
	},
	{
		Code: "key_invalid", Do: FixRequest, Effect: None, Status: http.StatusBadRequest, Title: "Key invalid",
		Meaning: "The request doesn't have exactly one well-formed key. Nothing was executed.",
		Action:  "Send one key, in visible ASCII.",
		Hint:    "In a header it is bare or in double quotes.",
	},
	{
		Code: "unidentified", Do: FixRequest, Effect: None, Status: http.StatusUnauthorized, Title: "Caller unknown",
		Meaning: "The caller sent no credential, so their keys can't be told apart from other people's. Nothing was executed.",
		Action:  "Send the credential that the route names, or declare the route anonymous: share. A request that a proxy passed on without a credential doesn't count as coming from this machine.",
	},
	{
		Code: "body_unreadable", Do: Wait, Effect: None, Status: http.StatusBadRequest, Title: "Body unreadable",
		Meaning: "The body did not arrive whole, or not in time. Nothing was executed.",
		Action:  "Send the request again with the same key.",
	},
	{
		Code: "body_too_large", Do: FixRequest, Effect: None, Status: http.StatusRequestEntityTooLarge, Title: "Body too large",
		Meaning: "The body is larger than the route accepts. Nothing was executed.",
		Action:  "Send less, or have the route's max_body raised.",
	},
	{
		Code: "answer_too_large", Do: Stop, Effect: None, Status: http.StatusInternalServerError, Title: "Answer too large",
		Meaning: "The answer to this request can't be recorded, so everything was rolled back and nothing was done.",
		Action:  "Have the operation's max_result raised.",
	},
	{
		Code: "connection_names_header", Do: FixRequest, Effect: None, Status: http.StatusBadRequest, Title: "Connection names a needed header",
		Meaning: "The Connection header names the key, the credential or a forwarding header, which would keep it from arriving. Nothing was executed.",
		Action:  "Leave those names out of Connection.",
	},
	{
		Code: "ambiguous_framing", Do: FixRequest, Effect: None, Status: http.StatusBadRequest, Title: "Ambiguous framing",
		Meaning: "The request gives its length in two ways, so two servers could read it differently. Nothing was executed.",
		Action:  "Send Content-Length or Transfer-Encoding, not both.",
	},
	{
		Code: "not_guardable", Do: FixRequest, Effect: None, Status: http.StatusNotImplemented, Title: "Can't be guarded",
		Meaning: "The request asks for another protocol, such as WebSocket, which can't be recorded and replayed, and the route does not let it pass unguarded. Nothing was executed.",
		Action:  "List upgrade under the route's unguarded, or send the request without a key where keys are optional.",
	},
	{
		Code: "ambiguous_target", Do: FixRequest, Effect: None, Status: http.StatusBadRequest, Title: "Ambiguous target",
		Meaning: "The target of the request could be read in two ways: it has a space, or its path belongs to a guarded route if spelled another way. Nothing was executed.",
		Action:  "Spell the path as the route does.",
	},
	{
		Code: "method_spelling", Do: FixRequest, Effect: None, Status: http.StatusNotImplemented, Title: "Method not in capitals",
		Meaning: "The method is a known one, but not in capitals, so two servers could read it as two methods. Nothing was executed.",
		Action:  "Send the method in capitals, such as POST.",
	},
	{
		Code: "upstream_unreachable", Do: Wait, Effect: None, Status: http.StatusBadGateway, Title: "Upstream unreachable",
		Meaning: "No connection to the upstream could be made, or it refused the request's HTTP/2 stream before it began. Nothing was executed.",
		Action:  "Send the same request again with the same key.",
		Retry:   time.Second,
	},
	{
		Code: "mandate_expired", Do: FixRequest, Effect: None, Status: http.StatusConflict, Title: "Mandate expired",
		Meaning: "The call needs a mandate, and this one has expired or was ended, or the user has none with this id. Nothing was executed.",
		Action:  "Make a new mandate of the same cart or intent, and send the call with its id.",
	},
	{
		Code: "version_differs", Do: Verify, Effect: None, Status: http.StatusConflict, Title: "Another version",
		Meaning: "The entity has another version by now than the one that this change follows. Nothing was changed.",
		Action:  "Read the entity, decide again, and send the change with the version that comes next.",
	},
}
