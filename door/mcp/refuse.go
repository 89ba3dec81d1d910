package mcp

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/internal/jsonrpc"
	"github.com/semelhq/semel/internal/meaning"
	"github.com/semelhq/semel/internal/problem"
	"github.com/semelhq/semel/store"
)

// refusal is the answer to a caller who gets no outcome.
type refusal struct {
	code    semel.Code
	status  int // of HTTP
	rpc     int // in JSON-RPC
	detail  string
	do      store.Action
	effect  string
	ended   store.Disposition // how a call ended whose result isn't kept
	retry   time.Duration     // zero: sending it again makes no sense
	confirm string            // the token that confirms the call
	record  string            // the name of the record, if it is the caller's
	data    map[string]any
}

// refusalFor is what a code means here.
func refusalFor(code semel.Code) refusal {
	m, _ := door.Lookup(code)
	f := refusal{code: m.Code, status: m.Status, rpc: jsonrpc.InternalError, detail: m.Detail(), do: m.Do, effect: m.Effect, retry: m.Retry}
	switch {
	case code == semel.CodeInvalidCall, code == door.CodeKeyInvalid:
		f.rpc, f.status = jsonrpc.InvalidParams, http.StatusOK
	case m.Do == meaning.FixRequest, m.Status == http.StatusForbidden:
		f.rpc = jsonrpc.InvalidRequest
	}
	return f
}

// refusalOf is the refusal for an error, with what the engine has said, if anything.
func refusalOf(err error, ans *semel.Answer) refusal {
	if e, ok := errors.AsType[*jsonrpc.Error](err); ok {
		err = &fault{status: http.StatusBadRequest, rpc: e.Code, message: e.Message}
	}
	if e, ok := errors.AsType[*fault](err); ok {
		f := refusalFor(semel.CodeInvalidCall)
		if f.status, f.rpc, f.detail, f.data = e.status, e.rpc, e.message, e.data; e.rpc == missingCapability {
			f.effect = "" // the call has run
		}
		return f
	}
	f := refusalFor(door.CodeOf(err))
	if e, ok := errors.AsType[*semel.Error](err); ok {
		if f.retry = cmp.Or(e.RetryAfter, f.retry); f.rpc == jsonrpc.InvalidParams {
			f.detail = problem.Sentence(e.Message) + " Nothing was executed."
		}
	}
	if ans == nil || ans.Decision == "" {
		return f
	}
	if f.code == semel.CodeResultNotKept {
		if f.ended = ans.Record.Disposition; ans.Record.OnlyNamed() {
			f.detail = "An equal call was answered at " + ans.Record.EndedAt.String() + " (" + f.ended.String() + "), and the answer was kept until " + ans.Record.AnswerUntil().String() + ". The call will not be executed again."
		}
	}
	if ans.Record != nil && door.Names(ans) {
		f.record = ans.Record.ID.String()
	}
	return f
}

// head sets the headers that every refusal has.
func (f *refusal) head(header http.Header) {
	if f.retry > 0 {
		problem.RetryAfter(header, f.retry)
	}
	door.SetEffect(header, f.effect)
}

// facts says for programs and models what the refusal says for people.
func (f *refusal) facts() map[string]any {
	outcome := "not_run"
	switch {
	case f.effect == meaning.Unknown:
		outcome = "unknown"
	case f.ended == semel.DispositionCompleted:
		outcome = "done"
	case f.ended == semel.DispositionFailed:
		outcome = "failed"
	}
	facts := map[string]any{"code": f.code, "outcome": outcome, "action": f.do}
	if f.retry > 0 {
		facts["retry_after"] = problem.Seconds(f.retry)
	}
	if f.record != "" {
		facts["record"] = f.record
	}
	return facts
}

// write answers with the refusal as an error of JSON-RPC.
func (f *refusal) write(w http.ResponseWriter, to *request) {
	f.head(w.Header())
	problem.WriteBody(w, f.status, "application/json", jsonrpc.Answer(to.id, nil, f.text()))
}

// text is the refusal as an error of JSON-RPC.
func (f *refusal) text() []byte {
	data := f.data
	if data == nil {
		data = map[string]any{"semel": f.facts()}
	}
	return jsonrpc.ErrorOf(f.rpc, f.detail, data)
}

// protocol reports whether only the program that sends a call can cure what is wrong, or nothing can
// be said about the call.
func (f *refusal) protocol() bool {
	return f.rpc == jsonrpc.InvalidParams || f.data != nil || f.code == semel.CodeForbidden || f.status == http.StatusServiceUnavailable && f.effect == meaning.None
}

// refuse answers a tool call that was understood. A model can act on most refusals, so it gets a
// result that says what to do; what only its program can cure is an error.
func (c *conversation) refuse(f refusal) {
	if !c.Began && f.protocol() {
		f.write(c.W, c.req)
		return
	}
	if !c.Began {
		f.head(c.W.Header())
	}
	c.say(http.StatusOK, "", jsonrpc.Answer(c.req.id, c.explained(&f), nil))
}

// explained is the refusal as a result of the tool.
func (c *conversation) explained(f *refusal) []byte {
	facts, words := f.facts(), f.detail
	if facts["outcome"] == "unknown" && f.do == meaning.Verify {
		readers := c.policy.VerifyWith
		if readers == nil {
			readers = c.readers()
		}
		words = "The outcome of this call is unknown: it was sent to the tool, and no answer came back that proves what happened. It may have taken effect. Don't call the tool again, and don't try another way to the same effect."
		if len(readers) > 0 {
			facts["verify_with"] = readers
			words += " First find out whether it took effect, with one of these tools, which only read: " + strings.Join(readers, ", ") + "."
		} else {
			words += " Ask a person to find out whether it took effect."
		}
	}
	meta := map[string]any{vendor + "refusal": facts}
	if f.confirm != "" {
		if c.asks() {
			return c.question(f.confirm)
		}
		meta[confirmMember], words = f.confirm, c.confirmWords(f.record)
	}
	result := map[string]any{
		"content": []any{map[string]string{"type": "text", "text": words}}, "isError": true, "_meta": meta,
	}
	if c.req.modern {
		result["resultType"] = "complete"
	}
	if !c.seen.Of(c.asked.Name).Output { // a client compares it with the tool's schema
		result["structuredContent"] = facts
	}
	text, _ := json.Marshal(result) // strings and numbers
	return text
}
