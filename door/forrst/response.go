package forrst

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/internal/problem"
	"github.com/semelhq/semel/store"
)

type protocol struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// response is an answer on the wire, in the order of the specification's examples.
type response struct {
	Protocol   protocol          `json:"protocol"`
	ID         *string           `json:"id"`
	Result     json.RawMessage   `json:"result"`
	Errors     json.RawMessage   `json:"errors,omitempty"`
	Extensions []extension       `json:"extensions,omitempty"`
	Meta       map[string]string `json:"meta,omitempty"`
}

// extension is an extension in an answer.
type extension struct {
	URN  string `json:"urn"`
	Data any    `json:"data,omitempty"`
}

// answer is the answer to a delivery. It has either a result or errors.
type answer struct {
	effect string // see door.Meaning; empty: the code's
	status int
	result json.RawMessage
	errors json.RawMessage
	// data is the idempotency extension's data; nil leaves the extension out.
	data *data
	// others are extensions from an upstream's answer.
	others []extension
	// retry is when asking again makes sense; nil: never.
	retry *Retry

	// code says why there is no outcome, for [semel.Delivered].
	code semel.Code
}

// refused returns an answer with errors. Its code is the first error's.
func refused(errs Errors) answer {
	raw, err := marshal(errs)
	if err != nil { // only functions can give details that have no JSON form
		plain := make(Errors, len(errs))
		for i, e := range errs {
			plain[i] = &Error{Code: e.Code, Message: e.Message, Source: e.Source, Status: e.Status}
		}
		raw, _ = marshal(plain) // only strings and numbers are left
	}
	return answer{status: statusOf(errs), errors: raw, retry: retryOf(errs), code: semel.Code(errs[0].Code)}
}

// write sends an answer to a request, which may be nil if it could not be read.
func (s *Service) write(w http.ResponseWriter, id string, r *Request, a answer, began time.Time) {
	if m, known := door.Lookup(a.code); known && a.errors != nil && a.effect == "" {
		a.effect = m.Effect
	}
	doc := response{Protocol: protocol{"forrst", ProtocolVersion}, Result: a.result, Errors: a.errors, Meta: map[string]string{}}
	if a.errors != nil {
		doc.Result = json.RawMessage("null")
	}
	header := w.Header()
	if id != "" {
		doc.ID = &id
		if !strings.ContainsFunc(id, func(c rune) bool { return c < ' ' || c > '~' }) {
			header.Set("X-Forrst-Request-Id", id)
		}
	}
	urn := IdempotencyURN
	if r != nil && r.idempotency != nil {
		urn = r.idempotency.URN
	}
	if a.data != nil && !(s.opts.PublishedForm && a.data.Status == statusProcessing) {
		doc.Extensions = append(doc.Extensions, extension{urn, a.data})
	}
	doc.Extensions = append(doc.Extensions, a.others...)
	if a.retry != nil {
		if !s.opts.PublishedForm && !slices.ContainsFunc(a.others, isRetry) {
			doc.Extensions = append(doc.Extensions, extension{strings.TrimSuffix(urn, "idempotency") + "retry", a.retry})
		}
		if after := a.retry.After; after != nil {
			header.Set("Retry-After", strconv.FormatInt(after.Value, 10))
		}
	}
	if s.opts.Node != "" {
		doc.Meta["node"] = s.opts.Node
		header.Set("X-Forrst-Node", s.opts.Node)
	}
	if action := a.action(r); action != "" && !s.opts.PublishedForm {
		doc.Meta["action"] = string(action)
	}
	header.Set("X-Forrst-Duration-Ms", strconv.FormatInt(time.Since(began).Milliseconds(), 10))
	body, err := marshal(doc)
	if err != nil { // results and errors were checked before they were recorded
		http.Error(w, "the answer has no JSON form", http.StatusInternalServerError)
		return
	}
	door.SetEffect(header, a.effect)
	problem.WriteBody(w, a.status, "application/json", body)
}

// action returns what a program does after a refusal; empty for a function's own answer. Without a
// key, the same again would be another call.
func (a *answer) action(r *Request) store.Action {
	action := door.ActionOf(a.code, a.status)
	if action == store.ActionWait && a.effect != door.EffectNone && r != nil && r.idempotency == nil {
		return store.ActionVerify
	}
	return action
}

// marshal is json.Marshal without the escapes for HTML, so that a result keeps its text.
func marshal(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
