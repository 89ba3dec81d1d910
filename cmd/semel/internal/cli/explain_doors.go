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
