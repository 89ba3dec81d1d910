package cli

import (
	"net/http"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/door/activitypub/httpsig"
	"github.com/semelhq/semel/door/inbox"
)

// ofInboxes explains why inboxes refuse what comes in, over ActivityPub and from WhatsApp, and
// why messages that wait to be handled or sent are parked.
var ofInboxes = []door.Meaning{
	{Code: semel.Code(httpsig.SignatureWeak), Status: http.StatusUnauthorized, Title: "Signature covers too little",
		Meaning: "The signature leaves out something that it has to cover: the target, the date, the host or the digest of the body. Nothing was accepted.",
		Action:  "Have the sender sign these too. docs/activitypub.md lists what a signature has to cover."},
	{Code: semel.Code(httpsig.AlgorithmRefused), Status: http.StatusUnauthorized, Title: "Signature algorithm refused",
		Meaning: "The algorithm of the signature isn't known, is too weak, or doesn't fit the sender's key. Nothing was accepted.",
		Action:  "Have the sender use ed25519, or RSA with SHA-256 or SHA-512."},
	{Code: semel.Code(httpsig.DigestWrong), Status: http.StatusUnauthorized, Title: "Body isn't the one signed",
		Meaning: "The digest that was signed isn't that of the body. Nothing was accepted.",
		Action:  "Check that nothing between the sender and Semel changes the body."},
	{Code: semel.Code(httpsig.KeyGone), Status: http.StatusForbidden, Title: "Signing key gone",
		Meaning: "The server of the key says that there is no such key, or no such actor any more. Nothing was accepted.",
		Action:  "Nothing, if the account was deleted. Otherwise have the sender sign with a key that its server shows."},
	{Code: semel.Code(httpsig.KeyRefused), Status: http.StatusUnauthorized, Title: "Signing key refused",
		Meaning: "The key isn't fetched from where it is said to be, such as a private address, or the document there isn't that of the actor. Nothing was accepted.",
		Action:  "Look at the log, which says what is wrong with the document or the address."},
	{Code: semel.Code(httpsig.KeyUnavailable), Status: http.StatusServiceUnavailable, Title: "Signing key unavailable",
		Meaning: "The server of the key didn't answer, so the signature couldn't be checked. Nothing was accepted.",
		Action:  "The sender sends it again. If that goes on, check that this machine reaches the sender's server."},
	{Code: semel.Code(httpsig.OtherSigner), Status: http.StatusForbidden, Title: "Signed by somebody else",
		Meaning: "None of the signatures is of the actor who is said to do this. Nothing was accepted.",
		Action:  "Have the actor's own server send it."},
	{Code: semel.Code(inbox.CodeTooLong), Status: http.StatusRequestEntityTooLarge, Title: "Delivery too long",
		Meaning: "The delivery, or one of its events, is longer than is kept, or has too many events. Of a parked message it says that this one is.",
		Action:  "Raise the limit of the webhook or inbox, or have the sender send less at once."},
	{Code: "malformed", Status: http.StatusOK, Title: "WhatsApp: message malformed",
		Meaning: "A message of a WhatsApp delivery can't be read. The sender got its 2xx, because it can't do better, and the message is parked.",
		Action:  "Look at it with 'semel messages list --state parked', and discard it or replay it with a newer version."},
	{Code: "mapper", Status: http.StatusOK, Title: "WhatsApp: mapper failed",
		Meaning: "The mapper of a WhatsApp inbox refused a message or answered with no command. The message is parked.",
		Action:  "Mend the mapper, then replay the message with 'semel messages replay'."},
	{Code: "not_delivered", Status: 0, Title: "Message not delivered",
		Meaning: "The receiver refused the message for good, and it is parked.",
		Action:  "Read what the receiver said with 'semel messages show', mend the receiver, then replay the message."},
	{Code: "too_many_tries", Status: 0, Title: "Message tried too often",
		Meaning: "The message was sent as often as its destination's max_tries allows, and is parked.",
		Action:  "When the receiver is back, replay it with 'semel messages replay'."},
	{Code: "replayed", Status: 0, Title: "Message replayed",
		Meaning: "Somebody had a parked message sent again.",
		Action:  "Nothing."},
	{Code: "discarded", Status: 0, Title: "Message discarded",
		Meaning: "Somebody decided that a parked message isn't sent any more.",
		Action:  "Nothing. 'semel messages replay' sends it all the same."},
	{Code: "released", Status: 0, Title: "Lane released",
		Meaning: "A process gave back the order of messages that it worked on, because it stopped. Another goes on.",
		Action:  "Nothing."},
}

// ofDecisions explains the decisions that have no code, because nothing was refused, and what
// a throttled delivery was throttled by.
var ofDecisions = []door.Meaning{
	{Code: semel.Code(semel.Execute), Status: 0, Title: "Decision: execute",
		Meaning: "The delivery was the first with its key, or may run again, and was executed.",
		Action:  "Nothing."},
	{Code: semel.Code(semel.Replay), Status: 0, Title: "Decision: replay",
		Meaning: "The delivery was a duplicate and got the answer of the first. Nothing was executed.",
		Action:  "Nothing. 'semel why' shows what the first one did."},
	{Code: semel.Code(semel.LimitDuplicates), Status: http.StatusTooManyRequests, Title: "Limit: duplicates",
		Meaning: "Too many duplicates of one call, or by one caller, came at once (per_record, per_principal of the operation). Nothing was executed, and the answer is still there.",
		Action:  "Wait for Retry-After. Find out why the client repeats itself."},
	{Code: semel.Code(semel.LimitPrincipalRecords), Status: http.StatusTooManyRequests, Title: "Limit: calls of a caller",
		Meaning: "The caller has as many calls stored as the quota principal_records allows. New ones are refused; duplicates get their answers.",
		Action:  "Wait until the first of them expire, or raise the quota."},
	{Code: semel.Code(semel.LimitPrincipalBytes), Status: http.StatusTooManyRequests, Title: "Limit: bytes of a caller",
		Meaning: "The caller's stored calls take as many bytes as the quota principal_bytes allows. New ones are refused; duplicates get their answers.",
		Action:  "Wait until the first of them expire, have less kept with max_result, or raise the quota."},
	{Code: semel.Code(semel.LimitTenantRecords), Status: http.StatusTooManyRequests, Title: "Limit: calls of a tenant",
		Meaning: "The tenant has as many calls stored as the quota tenant_records allows. New ones are refused; duplicates get their answers.",
		Action:  "Wait until the first of them expire, or raise the quota."},
	{Code: semel.Code(semel.LimitTenantBytes), Status: http.StatusTooManyRequests, Title: "Limit: bytes of a tenant",
		Meaning: "The tenant's stored calls take as many bytes as the quota tenant_bytes allows. New ones are refused; duplicates get their answers.",
		Action:  "Wait until the first of them expire, have less kept with max_result, or raise the quota."},
	{Code: semel.Code(semel.LimitUnverifiedHolds), Status: http.StatusTooManyRequests, Title: "Limit: held calls of an unverified caller",
		Meaning: "A caller whom nobody has verified has as many held calls as the quota unverified_holds allows. They begin no new calls; duplicates get their answers.",
		Action:  "Settle the held calls, let the caller be verified, or raise the quota."},
	{Code: semel.Code(semel.LimitAbortedCalls), Status: http.StatusTooManyRequests, Title: "Limit: aborted calls of an unverified caller",
		Meaning: "A caller whom nobody has verified has begun as many calls within a minute that came to nothing as the quota principal_records allows. Such a caller is usually guessing credentials.",
		Action:  "Wait a minute, let the caller be verified, or raise the quota."},
}

// ofExits explains the exit codes of the commands, the first of which is 0.
var ofExits = []door.Meaning{
	ExitOK: {Code: "exit_0", Title: "Exit code 0: done",
		Meaning: "The command did what it was asked for, or the check found nothing.", Action: "Nothing."},
	ExitCheck: {Code: "exit_1", Title: "Exit code 1: a check failed, or the work could not be done",
		Meaning: "What was checked is wrong, such as a configuration, a log or a service that isn't ready; or something else kept the command from its work.",
		Action:  "Read what standard error, or the list on standard output, says."},
	ExitUsage: {Code: "exit_2", Title: "Exit code 2: wrong command line",
		Meaning: "The command line is wrong: an unknown flag, a missing argument, a file that isn't there. Nothing was done.",
		Action:  "Read the message, and the command's --help."},
	ExitNotFound: {Code: "exit_3", Title: "Exit code 3: not found",
		Meaning: "There is no such call, message or entry, or it isn't yours to see. Its window may be over.",
		Action:  "Look for it with 'semel records list'. The evidence log knows calls whose records are gone: 'semel evidence show'."},
	ExitConflict: {Code: "exit_4", Title: "Exit code 4: not in that state",
		Meaning: "The call or message isn't in a state that allows this, or somebody changed it meanwhile. Nothing was changed.",
		Action:  "Look at it with 'semel why', and decide anew."},
	ExitUnavailable: {Code: "exit_5", Title: "Exit code 5: in use, out of reach, or unknown",
		Meaning: "Another process has the store open, or the service or store didn't answer. If you wanted to change something, it may have been changed.",
		Action:  "Look with 'semel why' whether it was changed before you do it again. Name the service with --url, or add a context."},
}

// ofJSONRPC explains the codes of JSON-RPC, with those that A2A adds. The reason beside them is
// one of the other codes, in capitals.
var ofJSONRPC = []door.Meaning{
	{Code: "-32700", Status: http.StatusBadRequest, Title: "JSON-RPC: not JSON", Meaning: "The body isn't JSON, or has a member twice. Nothing was executed.", Action: "Send one JSON object."},
	{Code: "-32600", Status: http.StatusBadRequest, Title: "JSON-RPC: not a request", Meaning: "The JSON isn't a request of JSON-RPC 2.0, or the call is refused as it stands. Nothing was executed.", Action: "Read the reason in its data, and have it explained."},
	{Code: "-32601", Status: http.StatusNotFound, Title: "JSON-RPC: unknown method", Meaning: "There is no such method. Nothing was executed.", Action: "Check the spelling, and the version of the protocol."},
	{Code: "-32602", Status: http.StatusBadRequest, Title: "JSON-RPC: wrong parameters", Meaning: "The parameters aren't what the method takes, or the message id was used with another message. Nothing was executed.", Action: "Read the reason in its data. A new message needs a new id."},
	{Code: "-32603", Status: http.StatusInternalServerError, Title: "JSON-RPC: internal error", Meaning: "The server has a fault. Whether the call was executed, the reason says.", Action: "Send it again under the same message id."},
	{Code: "-32000", Status: http.StatusServiceUnavailable, Title: "JSON-RPC: server error", Meaning: "The server can't take the call now: another delivery runs, it is held, or the store doesn't answer. The reason says which.", Action: "Have the reason explained: held or in_flight, for example."},
	{Code: "-32001", Status: http.StatusNotFound, Title: "A2A: no such task", Meaning: "There is no task with this id, or it isn't the caller's.", Action: "Check the id, and who calls."},
	{Code: "-32002", Status: http.StatusConflict, Title: "A2A: task can't be cancelled", Meaning: "The task has ended, or its agent can't cancel it.", Action: "Ask for the task's state."},
	{Code: "-32003", Status: http.StatusBadRequest, Title: "A2A: no push notifications", Meaning: "The agent sends no push notifications.", Action: "Ask for the task, or subscribe to it."},
	{Code: "-32004", Status: http.StatusNotImplemented, Title: "A2A: not supported", Meaning: "The agent doesn't support the operation.", Action: "Read the agent's card for what it supports."},
	{Code: "-32005", Status: http.StatusUnsupportedMediaType, Title: "A2A: content type not supported", Meaning: "The agent doesn't take parts of this media type.", Action: "Send a type that its card lists."},
	{Code: "-32006", Status: http.StatusBadGateway, Title: "A2A: agent answered badly", Meaning: "The agent's answer isn't one of the protocol. Whether it did the work isn't known.", Action: "Look at the record: it may be held."},
	{Code: "-32007", Status: http.StatusNotFound, Title: "A2A: no extended card", Meaning: "The agent has no extended card.", Action: "Use the public one."},
	{Code: "-32008", Status: http.StatusBadRequest, Title: "A2A: extension required", Meaning: "The agent demands an extension that the request doesn't name.", Action: "Name it, as the agent's card says."},
	{Code: "-32009", Status: http.StatusBadRequest, Title: "A2A: version not supported", Meaning: "The agent doesn't speak this version of the protocol.", Action: "Send a version that its card lists."},
	{Code: "-31401", Status: http.StatusUnauthorized, Title: "A2A: not authenticated", Meaning: "The agent can't tell who is calling. Nothing was executed.", Action: "Send a valid credential."},
	{Code: "-31403", Status: http.StatusForbidden, Title: "A2A: not allowed", Meaning: "The caller may not do this. Nothing was executed.", Action: "Use an identity that may."},
}
