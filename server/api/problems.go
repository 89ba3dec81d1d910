package api

import (
	"net/http"
	"slices"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/transport/semelhttp"
)

// Codes of refusals that only HTTP has.
const (
	CodeUnauthorized     semel.Code = "unauthorized"
	CodeUnknownHost      semel.Code = "unknown_host"
	CodeNotAcceptable    semel.Code = "not_acceptable"
	CodeTooLarge         semel.Code = "too_large"
	CodeOverloaded       semel.Code = "overloaded"
	CodeOverBudget       semel.Code = "over_budget"
	CodeBodyTooSlow      semel.Code = "body_too_slow"
	CodeMethodNotAllowed semel.Code = "method_not_allowed"
	CodeUnsupportedMedia semel.Code = "unsupported_media_type"
	CodeInternal         semel.Code = "internal"
)

// ProblemInfo explains a code, whatever call it was about.
type ProblemInfo struct {
	Code semel.Code `json:"code"`
	// Status is the HTTP status with which this API answers. A route's profile may have
	// another one.
	Status int `json:"status"`
	// Title names the problem, Meaning says what happened, Action what to do.
	Title   string `json:"title"`
	Meaning string `json:"meaning"`
	Action  string `json:"action"`
}

// Problems lists all codes, in the order in which a call can meet them.
func Problems() []ProblemInfo { return slices.Clone(problems) }

// ProblemFor finds a code.
func ProblemFor(code semel.Code) (ProblemInfo, bool) {
	i := slices.IndexFunc(problems, func(p ProblemInfo) bool { return p.Code == code })
	if i < 0 {
		return ProblemInfo{}, false
	}
	return problems[i], true
}

// infoFor is ProblemFor for codes that should be in the table.
func infoFor(code semel.Code) ProblemInfo {
	info, ok := ProblemFor(code)
	if !ok {
		info, _ = ProblemFor(CodeInternal)
	}
	return info
}

var problems = []ProblemInfo{
	{CodeUnauthorized, http.StatusUnauthorized, "Not authenticated",
		"The server can't tell who is calling: the credential is missing, expired or not valid. Nothing was looked up.",
		"Send a valid credential, for instance Authorization: Bearer and a token of the server's configuration."},
	{semel.CodeForbidden, http.StatusForbidden, "Not allowed",
		"The caller is known, but may not do or see this: they lack the role, ask for another tenant, or the operation doesn't give them the stored answer.",
		"Use an identity that may, or have the role added to this one."},
	{CodeUnknownHost, http.StatusMisdirectedRequest, "Unknown host",
		"The request came to an address of this machine under a name that is not the listener's. A page in a browser can do that if its own name is pointed to this machine. Nothing was looked up.",
		"Use 127.0.0.1 or localhost. Behind a proxy on the same machine, add the names that it passes on to listen.hosts."},
	{CodeOverloaded, http.StatusServiceUnavailable, "Too much in flight",
		"The server has reached its limit of requests, or of bytes in flight; or, with status 429, other requests of the tenant or the caller have reached theirs. No guarded call was begun.",
		"Send the same request again after the time in Retry-After."},
	{CodeOverBudget, http.StatusRequestEntityTooLarge, "Body larger than a budget",
		"The body is larger than everything that the server, a tenant or a caller may have in flight. No guarded call was begun.",
		"Send less, or have total_bytes, tenant_bytes or principal_bytes under limits raised."},
	{CodeBodyTooSlow, http.StatusRequestTimeout, "Body too slow",
		"The body came more slowly than limits.rate allows, or stopped for limits.read_timeout. No guarded call was begun.",
		"Send the same request again."},
	{CodeTooLarge, http.StatusRequestEntityTooLarge, "Body too large",
		"The body is larger than the server accepts. Nothing was executed.",
		"Send less, or have the limit raised. Keep large results elsewhere and complete with a reference to them."},
	{CodeNotAcceptable, http.StatusNotAcceptable, "Not acceptable",
		"The server can't answer in a form that the Accept header allows.",
		"Accept application/json and application/problem+json."},
	{CodeUnsupportedMedia, http.StatusUnsupportedMediaType, "Not JSON",
		"The Content-Type says that the body is not JSON. Nothing was executed.",
		"Send JSON with Content-Type: application/json. With curl, use --json instead of -d."},
	{CodeMethodNotAllowed, http.StatusMethodNotAllowed, "Method not allowed",
		"The address exists, but not for this method.",
		"Use a method that the Allow header lists."},
	{semel.CodeInvalidCall, http.StatusBadRequest, "Invalid request",
		"The request is malformed: not strict JSON, an unknown or missing member, a wrong type, a bad key. Nothing was looked up and nothing was executed.",
		"Correct what the problem's errors name. Repeating the same request gives the same answer."},
	{semel.CodeUnknownOperation, http.StatusNotFound, "Unknown operation",
		"No operation of that name is declared on the server.",
		"Check the name and its version, or declare the operation. GET /v1/operations lists all operations."},
	{semel.CodeInvalidOperation, http.StatusBadRequest, "Invalid operation",
		"The declaration of an operation is contradictory or unsafe. The configuration was not accepted.",
		"Correct the fields that the message names."},
	{semel.CodeConflict, http.StatusUnprocessableEntity, "Key used with another payload",
		"The key was used before with another payload. Nothing was executed, and the other outcome is not shown.",
		"Send the first payload unchanged, or this one with a new key."},
	{semel.CodeInFlight, http.StatusConflict, "In flight",
		"The first delivery of this call is still being executed. Nothing was executed for this one.",
		"Ask again after the time in Retry-After, or wait with Prefer: wait=N."},
	{semel.CodeHeld, http.StatusConflict, "Held: outcome unknown",
		"The call was begun, and nobody knows whether its work was done: the process died or panicked, the upstream broke off or took too long, or the handler said that it doesn't know. The record says which. The call isn't executed again until somebody settles it.",
		"Read why it is held with 'semel records get', find out what happened, then settle or release the record. Callers ask again later."},
	{semel.CodeOtherDoor, http.StatusConflict, "Key used elsewhere",
		"The key was used before through another door of this service, such as a route, whose calls and answers are not this one's. Nothing was executed, and nothing is shown.",
		"Send the call where it was sent first, or this one with a new key."},
	{semel.CodeTooLate, http.StatusPreconditionFailed, "Too late",
		"The call was first sent longer ago than outcomes are kept, so it may have been executed and forgotten. Nothing was executed.",
		"Find out what became of the call before sending it with a new key."},
	{semel.CodeOtherCaller, http.StatusConflict, "Key used with another credential",
		"The key can't be guessed and was used before by a caller with another credential, which nobody has verified, and something may have happened. Nothing was executed, and nothing is shown of the first call.",
		"If you have renewed your credential, send the request or ask for its status with the first one, or find out in another way what happened; a new key makes another call. Callers who are verified by token, JWT, client certificate or trusted header are recognized after a renewal."},
	{semel.CodeThrottled, http.StatusTooManyRequests, "Too many calls",
		"The same call was repeated too often, or one principal repeats too much; or the call is new, and its caller or tenant has used up a quota of records or bytes. The member limit says which. Nothing was executed.",
		"Repeat it after the time in Retry-After. Over a quota, calls that began before are still answered."},
	{semel.CodeConfirmationRequired, http.StatusPreconditionRequired, "Confirmation required",
		"The operation needs a confirmation before it runs. Nothing was executed.",
		"Have the person confirm, and send the same call again with the token of the problem's challenge as confirm."},
	{semel.CodeConfirmationRefused, http.StatusForbidden, "Confirmation refused",
		"The confirmation token or the further proof is wrong, used, expired, or belongs to another call or caller. Nothing was executed.",
		"Send the call without a token to get a new one."},
	{semel.CodeRejected, http.StatusUnprocessableEntity, "Rejected",
		"The call was refused for good when it was executed. Every duplicate gets the same refusal.",
		"Read the error for the reason. A corrected call needs a new key."},
	{semel.CodeFailed, http.StatusInternalServerError, "Failed",
		"The call was executed and failed. The operation's on_failure says whether a duplicate gets the same failure or runs again.",
		"Read the error for the reason. With on_failure: retry, send the same call again."},
	{semel.CodeAborted, http.StatusConflict, "Aborted",
		"The attempt ended with proof that nothing happened.",
		"Send the same call again: it runs again."},
	{semel.CodeUnknown, http.StatusServiceUnavailable, "Result unknown",
		"The store didn't say whether it kept what was written. It may have kept it, or may still do so.",
		"Send exactly the same request again: that finds out, and does no harm."},
	{semel.CodeResultNotKept, http.StatusGone, "Result not kept",
		"The call ran, but its result was too large, streamed or otherwise not kept. It does not run again.",
		"Get the result from where the effect happened. Raise max_result if results should be kept."},
	{semel.CodeLeaseLost, http.StatusConflict, "Lease lost",
		"This holder was silent for longer than its lease, or the record was held, settled or taken over. Another holder may be executing the call by now.",
		"Stop the work, make no further effect, and begin again with the same key to learn the outcome."},
	{semel.CodeAlreadyEnded, http.StatusConflict, "Already ended",
		"The attempt, or the effect, was ended before in another way. The first end counts.",
		"Read the record. Repeating the first end is answered with 200."},
	{semel.CodeIllegalTransition, http.StatusConflict, "Not possible now",
		"The record's state doesn't allow this: it isn't held, is still executing, or has changed meanwhile.",
		"Read the record again and decide anew."},
	{semel.CodeEffectUnknown, http.StatusConflict, "Effect unknown",
		"The effect was started earlier and its result was not recorded, so it may have happened. It may not be called again.",
		"Ask the provider, with the effect's key, and settle the effect. If you asked here before, got no answer and made no call, ask with not_called: true."},
	{semel.CodeNotFound, http.StatusNotFound, "Not found",
		"There is no such record, execution or address, or it belongs to another caller.",
		"Check the name and the identity. Expired and purged records are gone."},
	{semel.CodeUnsupported, http.StatusNotImplemented, "Not supported by the store",
		"The store that the server runs on can't do this.",
		"Use a store that can."},
	{semel.CodeStoreUnavailable, http.StatusServiceUnavailable, "Store unavailable",
		"The store didn't answer, so the server can't tell whether the call was seen before. Nothing was executed.",
		"Send the same request again after the time in Retry-After."},
	{semel.CodeClosed, http.StatusServiceUnavailable, "Shutting down",
		"The server is shutting down. Nothing was executed.",
		"Send the same request again; another node, or this one after its restart, answers."},
	{CodeInternal, http.StatusInternalServerError, "Internal error",
		"The server has a fault. It isn't known whether something was executed.",
		"Send the same request again with the same key. If it persists, report it with the server's log."},
	{semelhttp.CodeKeyMissing, http.StatusBadRequest, "Key missing",
		"The route needs a key and the request has none. Nothing was executed.",
		"Send the key header with a key that is unique to the request and the same in all its retries, such as a UUID."},
	{semelhttp.CodeKeyInvalid, http.StatusBadRequest, "Key invalid",
		"The request doesn't have exactly one well-formed key. Nothing was executed.",
		"Send one key, bare or in double quotes, in visible ASCII."},
	{semelhttp.CodeUnidentified, http.StatusUnauthorized, "Caller unknown",
		"The caller sent no credential, so their keys can't be told apart from other people's. Nothing was executed.",
		"Send the credential that the route names, or declare the route anonymous: share. A request that a proxy passed on without a credential doesn't count as coming from this machine."},
	{semelhttp.CodeBodyUnreadable, http.StatusBadRequest, "Body unreadable",
		"The body did not arrive whole, or not in time. Nothing was executed.",
		"Send the request again with the same key."},
	{semelhttp.CodeBodyTooLarge, http.StatusRequestEntityTooLarge, "Body too large",
		"The body is larger than the route accepts. Nothing was executed.",
		"Send less, or have the route's max_body raised."},
	{"connection_names_header", http.StatusBadRequest, "Connection names a needed header",
		"The Connection header names the key, the credential or a forwarding header, which would keep it from arriving. Nothing was executed.",
		"Leave those names out of Connection."},
	{"ambiguous_framing", http.StatusBadRequest, "Ambiguous framing",
		"The request gives its length in two ways, so two servers could read it differently. Nothing was executed.",
		"Send Content-Length or Transfer-Encoding, not both."},
	{"not_guardable", http.StatusNotImplemented, "Can't be guarded",
		"The request asks for another protocol, such as WebSocket, which can't be recorded and replayed, and the route does not let it pass unguarded. Nothing was executed.",
		"List upgrade under the route's unguarded, or send the request without a key where keys are optional."},
	{"ambiguous_target", http.StatusBadRequest, "Ambiguous target",
		"The target of the request could be read in two ways: it has a space, or its path belongs to a guarded route if spelled another way. Nothing was executed.",
		"Spell the path as the route does."},
	{"method_spelling", http.StatusNotImplemented, "Method not in capitals",
		"The method is a known one, but not in capitals, so two servers could read it as two methods. Nothing was executed.",
		"Send the method in capitals, such as POST."},
	{"upstream_unreachable", http.StatusBadGateway, "Upstream unreachable",
		"No connection to the upstream could be made, so certainly nothing was sent. Nothing was executed.",
		"Send the same request again with the same key."},
}
