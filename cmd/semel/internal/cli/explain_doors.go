package cli

import (
	"net/http"
	"slices"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/door/forrst"
	"github.com/semelhq/semel/door/ids"
	"github.com/semelhq/semel/door/webhook"
	"github.com/semelhq/semel/evidence"
)

// explained are the codes of all doors, those of the service's own API first, and what else
// has a short name in answers, logs and commands.
func explained() []door.Meaning {
	return slices.Concat(door.Meanings(), ofDoors, ofForrst, ofInboxes, ofJSONRPC, ofDecisions, ofExits)
}

// ofDoors explains the words of other doors: what webhooks are refused with, and the words
// that the specifications of commands and of Forrst have for what the API calls otherwise.
var ofDoors = []door.Meaning{
	{Code: semel.Code(webhook.CodeSignatureMissing), Status: http.StatusUnauthorized, Title: "Signature missing",
		Meaning: "The delivery has no signature where its sender puts one. Nothing was accepted.",
		Action:  "Check that the sender signs, and that the webhook's source is the sender's. 'semel webhook verify' says what is missing in a captured delivery."},
	{Code: semel.Code(webhook.CodeSignatureMalformed), Status: http.StatusUnauthorized, Title: "Signature malformed",
		Meaning: "The signature can't be read: it has another form than the sender's. Nothing was accepted.",
		Action:  "Check that the webhook's source is the sender's, and that no proxy changes headers."},
	{Code: semel.Code(webhook.CodeSignatureWrong), Status: http.StatusUnauthorized, Title: "Signature wrong",
		Meaning: "No secret of the webhook, or not the key of the sender of an activity, makes this signature of this body. Nothing was accepted.",
		Action:  "Check the secret, and that nothing in front changes the body or the Host. While a secret is being replaced, list both in secret_files."},
	{Code: semel.Code(webhook.CodeTimestampMalformed), Status: http.StatusUnauthorized, Title: "Webhook: timestamp malformed",
		Meaning: "The time at which the delivery was signed can't be read. Nothing was accepted.",
		Action:  "Check that the webhook's source is the sender's."},
	{Code: semel.Code(webhook.CodeTooOld), Status: http.StatusUnauthorized, Title: "Signed or sent too long ago",
		Meaning: "A webhook or an activity was signed longer ago than is allowed, so it may be a repetition by somebody else; nothing was accepted. Of a parked message it says that the message waited longer than its destination's max_age.",
		Action:  "Check the clocks of both sides. Replay a parked message with 'semel messages replay' if it still matters."},
	{Code: semel.Code(webhook.CodeTooNew), Status: http.StatusUnauthorized, Title: "Signed in the future",
		Meaning: "The delivery was signed later than it came. Nothing was accepted.",
		Action:  "Check the clocks of both sides."},
	{Code: semel.Code(webhook.CodeUnreadable), Status: http.StatusBadRequest, Title: "Delivery unreadable",
		Meaning: "The delivery is signed, but it isn't what its source sends: no JSON, for example. Nothing was accepted.",
		Action:  "Check that the webhook's source is the sender's."},
	{Code: semel.Code(webhook.CodeTransition), Status: http.StatusOK, Title: "Webhook: impossible step of a payment",
		Meaning: "By the payment's state machine this event can't happen after those that came before. The sender got its 2xx, because it can't do better. With mode: ack the event is parked.",
		Action:  "Look at it with 'semel messages list --state parked', and replay or discard it. With mode: sync, handle it by hand."},
	{Code: "payment_differs", Status: http.StatusOK, Title: "Webhook: another payment",
		Meaning: "By settles, the event is about a payment of commerce that was recorded otherwise, with another transaction say, or that isn't there. The upstream never gets the event. With mode: ack it is parked.",
		Action:  "Compare the payment at the gateway with 'semel why' of its reference. When you know what happened, replay the event or discard it."},
	{Code: semel.Code(webhook.CodeErased), Status: http.StatusOK, Title: "Webhook: erased payment",
		Meaning: "The event, or all that was known of its payment, was erased lately, so nobody can tell what the event means to the payment. The sender got its 2xx. With mode: ack the event is parked.",
		Action:  "Discard it with 'semel messages discard', and purge its record with --erase-evidence."},
	{Code: semel.Code(ids.ReasonEnvelope), Status: http.StatusBadRequest, Title: "Command: invalid envelope",
		Meaning: "The envelope isn't strict JSON, or has an unknown member or one of the wrong type. Nothing was executed.",
		Action:  "Correct what the answer names. 'semel ids explain' reads an envelope without delivering it."},
	{Code: semel.Code(ids.ReasonCommand), Status: http.StatusNotFound, Title: "Command: not declared",
		Meaning: "The registry has no command with this entity and action. Nothing was executed.",
		Action:  "Correct the intent, or declare the command."},
	{Code: semel.Code(ids.ReasonActor), Status: http.StatusBadRequest, Title: "Command: actor missing",
		Meaning: "The actor that the command is bound to is missing, or there is one that its declaration doesn't provide for. Nothing was executed.",
		Action:  "Send actor_id or effective_actor_id as binding in the registry says."},
	{Code: semel.Code(ids.ReasonArgs), Status: http.StatusBadRequest, Title: "Command: invalid arguments",
		Meaning: "The arguments don't fit their declaration, or can't be normalised. Nothing was executed.",
		Action:  "Correct what the answer names."},
	{Code: semel.Code(ids.ReasonEphemeral), Status: http.StatusBadRequest, Title: "Command: argument differs in every delivery",
		Meaning: "An argument has the name of something that is new in every delivery, such as a timestamp, and the registry doesn't say what to do with it. A retry would have another key. Nothing was executed.",
		Action:  "Leave it out, or declare what it is in the registry."},
	{Code: semel.Code(ids.ReasonKind), Status: http.StatusBadRequest, Title: "Command: another kind",
		Meaning: "The envelope says another command_kind than the registry. Nothing was executed.",
		Action:  "Correct or leave out command_kind."},
	{Code: semel.Code(ids.ReasonKey), Status: http.StatusUnprocessableEntity, Title: "Command: key of another envelope",
		Meaning: "The key belongs to another envelope, whether an earlier delivery or this one's own content says so. Nothing was executed, and the other outcome isn't shown. The API calls it conflict.",
		Action:  "Send the first envelope unchanged, or this one without idempotency_key. The evidence log has the fingerprints of both."},
	{Code: ids.ReasonUnknownOutcome, Status: http.StatusAccepted, Title: "Outcome unknown",
		Meaning: "The command or function was begun, and nobody knows whether its work was done. It isn't executed again until somebody settles it. The API calls it held.",
		Action:  "Find out what happened, and settle the record with 'semel records settle'. Callers ask again later."},
	{Code: ids.ReasonNotKept, Status: http.StatusOK, Title: "Command: outcome not kept",
		Meaning: "The command was executed, and its outcome was too large to be kept. The API calls it result_not_kept.",
		Action:  "Get the outcome from where the effect happened."},
	{Code: semel.Code(evidence.TypeRejected), Status: http.StatusUnprocessableEntity, Title: "Command: rejected",
		Meaning: "The type of an answer and of an entry in the evidence log: the command was refused for good, or its key belongs to another envelope. The reason says which.",
		Action:  "Read the reason, and have it explained: idempotency_conflict, for example."},
	{Code: semel.Code(forrst.IdempotencyConflict), Status: http.StatusConflict, Title: "Forrst: key used with other arguments",
		Meaning: "The key was used before with other arguments for this function and version. Nothing was executed. The API calls it conflict.",
		Action:  "Send the first arguments unchanged, or these with a new key. The details have the hash of the first."},
	{Code: semel.Code(forrst.IdempotencyProcessing), Status: http.StatusConflict, Title: "Forrst: being processed, or outcome unknown",
		Meaning: "The first request with this key is still being executed; or, with the reason outcome_unknown, it was begun and nobody knows whether its work was done. Nothing was executed for this one. The API calls it in_flight or held.",
		Action:  "Ask again with the same key after retry_after. If the reason is outcome_unknown, somebody has to settle the record first."},
}

// ofForrst explains the codes of Forrst, but for the two about keys. Semel answers some of them
// itself, and passes on the others from the function that it guards.
var ofForrst = []door.Meaning{
	forrstCode(forrst.ParseError, http.StatusBadRequest, "not JSON", "The body isn't JSON. Nothing was executed.", "Send one JSON object."),
	forrstCode(forrst.InvalidRequest, http.StatusBadRequest, "invalid request", "The JSON isn't a request of Forrst. Nothing was executed.", "Correct what the details name."),
	forrstCode(forrst.InvalidProtocolVersion, http.StatusBadRequest, "unknown version of the protocol", "The request is of a version of Forrst that isn't spoken here. Nothing was executed.", "Send version 0.1.0."),
	forrstCode(forrst.FunctionNotFound, http.StatusNotFound, "unknown function", "There is no such function here: not yet, or no longer. Nothing was executed.", "Check the spelling, and whether the function is deployed."),
	forrstCode(forrst.VersionNotFound, http.StatusNotFound, "unknown version of the function", "The function has no such version here. Nothing was executed.", "Call a version that is deployed."),
	forrstCode(forrst.FunctionDisabled, http.StatusServiceUnavailable, "function switched off", "The function is switched off at the moment. Nothing was executed.", "Ask again later with the same key."),
	forrstCode(forrst.InvalidArguments, http.StatusBadRequest, "invalid arguments", "The arguments aren't those of the function, or the key isn't one.", "Correct what the details name."),
	forrstCode(forrst.SchemaValidationFailed, http.StatusUnprocessableEntity, "arguments don't fit their schema", "The arguments don't fit the function's schema. Nothing was executed.", "Correct what the details name."),
	forrstCode(forrst.ExtensionNotSupported, http.StatusBadRequest, "unknown extension", "The request demands an extension that isn't supported here. Nothing was executed.", "Leave it out, or don't demand it."),
	forrstCode(forrst.ExtensionNotApplicable, http.StatusBadRequest, "extension doesn't fit", "The extension makes no sense for this function, such as a key for one that only reads. Nothing was executed.", "Leave the extension out."),
	forrstCode(forrst.Unauthorized, http.StatusUnauthorized, "not authenticated", "The server can't tell who is calling. Nothing was executed.", "Send a valid credential."),
	forrstCode(forrst.Forbidden, http.StatusForbidden, "not allowed", "The caller may not call this function, or not see its answer.", "Use an identity that may."),
	forrstCode(forrst.NotFound, http.StatusNotFound, "not found", "The function says that what it was asked about isn't there.", "Check the arguments."),
	forrstCode(forrst.Conflict, http.StatusConflict, "conflict", "The function says that the state of something doesn't allow it. It is no conflict of keys: that is IDEMPOTENCY_CONFLICT. As the reason of an error of A2A, CONFLICT is what the API calls conflict.", "Read what the function says."),
	forrstCode(forrst.Gone, http.StatusGone, "gone", "The function says that what it was asked about is gone for good, or the outcome of the call was not kept.", "Look at where the effect happened."),
	forrstCode(forrst.DeadlineExceeded, http.StatusRequestTimeout, "deadline passed", "The work wasn't done within the deadline. Whether it was done after all isn't known.", "Ask again with the same key: it isn't executed twice."),
	forrstCode(forrst.RateLimited, http.StatusTooManyRequests, "too many requests", "The caller asks too often, or is over its quota. Nothing was executed.", "Ask again with the same key after retry_after."),
	forrstCode(forrst.InternalError, http.StatusInternalServerError, "internal error", "The function or the server failed.", "Ask again with the same key: what was recorded is answered again."),
	forrstCode(forrst.Unavailable, http.StatusServiceUnavailable, "unavailable", "The function or the store doesn't answer now.", "Ask again with the same key."),
	forrstCode(forrst.DependencyError, http.StatusBadGateway, "dependency failed", "Something that the function needs failed. Whether the work was done isn't known, so the call is held.", "Find out what happened, and settle the record with 'semel records settle'."),
	forrstCode(forrst.AsyncOperationNotFound, http.StatusNotFound, "no such operation", "There is no operation with this id that runs by itself.", "Check the id."),
	forrstCode(forrst.AsyncOperationFailed, http.StatusInternalServerError, "operation failed", "The operation that ran by itself failed.", "Read its details."),
	forrstCode(forrst.AsyncCannotCancel, http.StatusBadRequest, "operation can't be cancelled", "The operation has ended, or can't be stopped.", "Ask for its state."),
	forrstCode(forrst.BatchFailed, http.StatusBadRequest, "batch failed", "One of the requests of a batch failed, and so did the batch.", "Read the details of each."),
	forrstCode(forrst.BatchTooLarge, http.StatusBadRequest, "batch too large", "The batch has more requests than are taken at once. Nothing was executed.", "Send smaller batches."),
	forrstCode(forrst.BatchTimeout, http.StatusGatewayTimeout, "batch not done in time", "The batch wasn't done in time. Which of its requests were isn't known.", "Ask again with the same keys."),
	forrstCode(forrst.ServerMaintenance, http.StatusServiceUnavailable, "server in maintenance", "The server is being worked on. Nothing was executed.", "Ask again later with the same key."),
	forrstCode(forrst.FunctionMaintenance, http.StatusServiceUnavailable, "function in maintenance", "The function is being worked on. Nothing was executed.", "Ask again later with the same key."),
	forrstCode(forrst.ReplayNotFound, http.StatusNotFound, "no such replay", "There is no request with this id to be sent again.", "Check the id."),
	forrstCode(forrst.ReplayExpired, http.StatusGone, "replay expired", "The request was kept for a time that is over.", "Send it as a new one, if it still matters."),
	forrstCode(forrst.ReplayAlreadyComplete, http.StatusConflict, "replay done", "The request was sent again already, and has its answer.", "Read that answer."),
	forrstCode(forrst.ReplayCancelled, http.StatusGone, "replay cancelled", "Somebody decided that the request isn't sent again.", "Send it as a new one, if it still matters."),
}

func forrstCode(code forrst.Code, status int, title, means, do string) door.Meaning {
	return door.Meaning{Code: semel.Code(code), Status: status, Title: "Forrst: " + title, Meaning: means, Action: do}
}
