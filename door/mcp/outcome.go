package mcp

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/judge"
	"github.com/semelhq/semel/internal/canon"
	"github.com/semelhq/semel/internal/jsonrpc"
	"github.com/semelhq/semel/internal/jsonscan"
	"github.com/semelhq/semel/internal/problem"
	"github.com/semelhq/semel/internal/sse"
	"github.com/semelhq/semel/internal/toolcall"
	"github.com/semelhq/semel/store"
)

// The numbers of the recorded forms. In the second one, a stream beside the record came before the
// response.
const (
	form       = 1
	streamForm = 2
)

// outcome is the recorded form of what came of a call: a result or an error as the server spelled
// it, without the id of the request.
type outcome struct {
	Form   int             `json:"mcp"`
	Status int             `json:"status,omitempty"` // of HTTP, if it isn't 200
	Result json.RawMessage `json:"result,omitempty"`
	Error  json.RawMessage `json:"error,omitempty"`

	Stream   []byte          `json:"stream,omitempty"`   // the mark of the stream, see package streams
	Fields   string          `json:"fields,omitempty"`   // those of the last event beside its data
	Response json.RawMessage `json:"response,omitempty"` // the whole one, in place of Result and Error
}

// ending is how an attempt ends with this outcome, by what the answer proves. If that is nothing,
// the caller gets words that a model understands, in place of anybody else's.
func (c *conversation) ending(found judge.Finding, o outcome) semel.Ending {
	end := semel.Ending{Result: o.recorded(), Failure: store.Failure{Code: found.Code, Message: found.Why()}}
	switch found.Verdict {
	case judge.Completed:
		end.Disposition, end.Failure = semel.DispositionCompleted, store.Failure{}
	case judge.Rejected:
		end.Disposition = semel.DispositionRejected
	case judge.Failed:
		end.Disposition = semel.DispositionFailed
	case judge.Aborted:
		end.Disposition, end.Result = semel.DispositionAborted, semel.Result{}
	default: // held, unless the policy or the ledger allows another attempt
		end.Disposition, end.Result = semel.DispositionAbandoned, semel.Result{}
		if c.code = semel.CodeHeld; c.policy.op.OnAbandoned == semel.RetryAbandoned {
			c.code = semel.CodeUnknown
		}
	}
	return end
}

// recorded is the outcome's form in a record. The server's spelling stays, so that a replay is the
// first answer byte for byte: [json.Marshal] would write it in another way.
func (o outcome) recorded() semel.Result {
	name, said := "result", o.Result
	if len(o.Error) > 0 {
		name, said = "error", o.Error
	}
	if o.Form == streamForm {
		name, said = "response", o.Response
	}
	small := outcome{Form: cmp.Or(o.Form, form), Stream: o.Stream, Fields: o.Fields}
	if o.Status != http.StatusOK {
		small.Status = o.Status
	}
	data, _ := json.Marshal(small) // numbers and strings
	if len(said) > 0 {
		data = slices.Concat(data[:len(data)-1], []byte(`,"`+name+`":`), said, []byte("}"))
	}
	return semel.Result{Data: data}
}

// recall reads a recorded outcome. Whoever settles a call by hand may give the result of the
// tool itself, or any text, which then is its content.
func recall(data []byte) (o outcome) {
	strict := canon.Check(data, canon.Exact) == nil && jsonrpc.First(data) == '{'
	if strict && jsonscan.Member(data, "mcp") != nil && json.Unmarshal(data, &o) == nil && (o.Form == form || o.Form == streamForm) {
		return o
	}
	if strict && (jsonscan.Member(data, "content") != nil || jsonscan.Member(data, "structuredContent") != nil) {
		return outcome{Result: data}
	}
	text, _ := json.Marshal(map[string]any{"content": []any{map[string]string{"type": "text", "text": string(data)}}})
	return outcome{Result: text}
}

// replayed marks answers to duplicates, as other doors over HTTP do.
const replayed = "Idempotency-Replayed"

// The marks in the _meta of results.
const (
	vendor         = "io.github.semelhq/"
	markReplayed   = `"` + vendor + `replayed":true`
	markRepetition = `"` + vendor + `repetition":"unknown"`
	markEcho       = markReplayed + `,"` + vendor + `echo":true`
)

// replay answers with a recorded outcome, under the id of this request.
func (c *conversation) replay(o outcome) {
	mark := markReplayed
	if c.repeats {
		mark = markEcho
	}
	if c.Kind != "" {
		mark += `,"` + vendor + `stream":"` + c.Kind + `"`
	}
	if o.Response == nil {
		if c.req.modern && jsonrpc.First(o.Result) == '{' && jsonscan.Member(o.Result, "resultType") == nil { // as whoever settles a call writes it
			o.Result = jsonscan.Insert(o.Result, 0, `"resultType":"complete"`)
		}
		o.Response = jsonrpc.Answer(c.req.id, o.Result, o.Error)
	}
	text := jsonscan.Replaced(o.Response, func([]byte) []byte { return c.req.id }, "id")
	c.W.Header().Set(replayed, "true")
	c.say(o.Status, o.Fields, marked(text, mark))
}

// say writes one response. A client that takes nothing but streams gets it as the only event.
func (c *conversation) say(status int, fields string, text []byte) {
	if c.Began {
		c.Say(append([]byte(fields), sse.JSON(text)...))
		return
	}
	status = cmp.Or(status, http.StatusOK)
	accept := strings.Join(c.req.in.Header["Accept"], ",")
	if strings.Contains(accept, sse.MediaType) && !strings.Contains(accept, "json") && !strings.Contains(accept, "*/*") && status == http.StatusOK {
		problem.WriteBody(c.W, http.StatusOK, sse.MediaType, sse.JSON(text))
		return
	}
	problem.WriteBody(c.W, status, "application/json", text)
}

// marked is a whole answer with a mark in the _meta of its result.
func marked(text []byte, mark string) []byte {
	return jsonscan.Replaced(text, func(result []byte) []byte { return toolcall.Added(result, "_meta", mark) }, "result")
}
