package a2a

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/internal/jsonrpc"
	"github.com/semelhq/semel/internal/problem"
)

// refusal is the answer to a caller who gets no task.
type refusal struct {
	code   semel.Code
	status int // HTTP status in the REST binding
	rpc    int // in JSON-RPC
	detail string
	state  State         // the message's task's, if known
	retry  time.Duration // zero: sending it again makes no sense
	record string        // the name of the record, if it is the caller's
}

// refusalFor returns what a code means here. If the sender's message is wrong, JSON-RPC calls
// that an error in its parameters.
func refusalFor(code semel.Code) refusal {
	m, _ := door.Lookup(code)
	r := refusal{code: m.Code, status: m.Status, rpc: jsonrpc.ServerError, detail: m.Detail(), retry: m.Retry}
	switch code {
	case semel.CodeInvalidCall, door.CodeKeyInvalid:
		r.rpc = jsonrpc.InvalidParams
	case semel.CodeConflict:
		r.rpc, r.detail = jsonrpc.InvalidParams, "The messageId, or the key, was used for another message. Nothing was executed. Send a new message under an id of its own."
	}
	return r
}

// refusalOf returns the refusal for an error, and for the engine's answer, if there is one.
func refusalOf(err error, ans *semel.Answer) refusal {
	r := refusalFor(door.CodeOf(err))
	if e, ok := errors.AsType[*semel.Error](err); ok && r.rpc == jsonrpc.InvalidParams && r.code != semel.CodeConflict {
		r.detail = problem.Sentence(e.Message)
	}
	if ans == nil || ans.Decision == "" {
		return r
	}
	r.retry = cmp.Or(ans.RetryAfter, r.retry)
	if ans.Record != nil && door.Names(ans) {
		r.record = ans.Record.ID.String()
		if ans.Decision == semel.InFlight || ans.Decision == semel.Held {
			r.state = InProgress
		}
	}
	return r
}

// grpcCodes are google.rpc.Status's names for HTTP statuses.
var grpcCodes = map[int]string{
	400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND", 409: "ABORTED", 410: "FAILED_PRECONDITION",
	412: "FAILED_PRECONDITION", 413: "INVALID_ARGUMENT", 422: "FAILED_PRECONDITION", 429: "RESOURCE_EXHAUSTED", 500: "INTERNAL",
	501: "UNIMPLEMENTED", 502: "UNAVAILABLE", 503: "UNAVAILABLE", 504: "DEADLINE_EXCEEDED",
}

// metadata says to programs what the refusal says to people.
func (r *refusal) metadata() map[string]string {
	m := map[string]string{"code": string(r.code), "action": string(door.ActionOf(r.code, r.status))}
	if r.state != "" {
		m["state"] = string(r.state)
	}
	if r.record != "" {
		m["record"] = r.record
	}
	return m
}

// httpOnly are HTTP's own statuses for a request that wasn't read. All other JSON-RPC errors
// come with 200.
var httpOnly = []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType}

// write answers with the refusal, in the form of the request.
func (r *refusal) write(w http.ResponseWriter, to *request) {
	if r.retry > 0 {
		problem.RetryAfter(w.Header(), r.retry)
	}
	status := r.status
	if to.rpc && !slices.Contains(httpOnly, status) {
		status = http.StatusOK
	}
	if m, known := door.Lookup(r.code); known {
		door.SetEffect(w.Header(), m.Effect)
	}
	problem.WriteBody(w, status, contentJSON, r.text(to))
}

// text returns the refusal as the body of an answer, or the data of an event: with the details
// of google.rpc, which both bindings have.
func (r *refusal) text(to *request) []byte {
	const types = "type.googleapis.com/google.rpc."
	details := []any{map[string]any{"@type": types + "ErrorInfo", "reason": strings.ToUpper(string(r.code)), "domain": "semel", "metadata": r.metadata()}}
	if r.retry > 0 {
		details = append(details, map[string]any{"@type": types + "RetryInfo", "retryDelay": fmt.Sprintf("%ds", problem.Seconds(r.retry))})
	}
	failure := map[string]any{"code": r.rpc, "message": r.detail, "data": details}
	if !to.rpc {
		failure = map[string]any{"error": map[string]any{"code": r.status, "status": cmp.Or(grpcCodes[r.status], "UNKNOWN"), "message": r.detail, "details": details}}
	}
	raw, _ := json.Marshal(failure) // strings and numbers
	return to.wrap(nil, raw)
}
