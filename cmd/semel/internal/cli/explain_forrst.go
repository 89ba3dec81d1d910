package cli

import (
	"net/http"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/door/forrst"
)

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
