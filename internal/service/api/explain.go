package api

import (
	"errors"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/internal/pasted"
)

// Explained says what a service would do with a request. Nothing is done to find out.
type Explained struct {
	// Outcome is guarded, passed, refused, door, api or nothing.
	Outcome string `json:"outcome" enum:"guarded,passed,refused,door,api,nothing" doc:"guarded: the call is executed once. passed: it goes to the upstream without a guard. door: a door of the service has its path. api: it's for the execution API. nothing: there is nothing at its address."`
	// Why is a sentence or two; Code is that of the refusal, if it is one.
	Why  string     `json:"why" doc:"A sentence or two."`
	Code semel.Code `json:"code,omitempty" doc:"Why it would be refused."`
	// Rule names the rule that matches, Door and Operation its target, and Upstream where the
	// request would go.
	Rule      string `json:"rule,omitempty" example:"routes[0]"`
	Door      string `json:"door,omitempty"`
	Operation string `json:"operation,omitempty"`
	Upstream  string `json:"upstream,omitempty"`
	// Key names the call, and KeyFrom is the selector that found it.
	Key     string `json:"idempotency_key,omitempty"`
	KeyFrom string `json:"key_from,omitempty" doc:"The selector that found the key." example:"header:Idempotency-Key"`
	// ID is the identity of the call; zero if there is none. It's shown to who may see its
	// tenant.
	ID          semel.ID          `json:"-"`
	PayloadHash semel.Fingerprint `json:"payload_hash,omitzero" doc:"The fingerprint of what the request asks for."`
	// Setting is the part of the configuration with that rule, and Details what the door itself
	// says about the request. Both are for whoever has the configuration.
	Setting string `json:"-"`
	Details any    `json:"-"`
	// Rules are all rules, in the order in which the service tries them.
	Rules []Rule `json:"rules" nullable:"false" doc:"All rules, in the order in which they are asked."`
}

// Rule is a rule of a service's configuration, and whether a request matches it.
type Rule struct {
	Rule    string `json:"rule" example:"routes[0]"`
	Match   string `json:"match" doc:"What it matches." example:"POST /charges/{id}"`
	Matches bool   `json:"matches" doc:"The request is handled by this rule."`
	Why     string `json:"why" doc:"Why the request is handled by it, or isn't."`
}

type explanation struct {
	Method string `json:"method"`
	Target string `json:"target"`
	Explained
	Record *met `json:"record,omitempty" doc:"The record that the request would meet; absent if its key is new."`
}

type met struct {
	ID          string      `json:"id"`
	Status      semel.State `json:"status" enum:"processing,completed,failed"`
	Held        bool        `json:"held,omitempty"`
	SamePayload bool        `json:"same_payload" doc:"Whether the request asks for what the record was made for. If not, it is a conflict."`
}

type explainInput struct {
	Body struct {
		Request string `json:"request" minLength:"1" maxLength:"262144" doc:"A request as it goes over the wire: first line, header, an empty line, body." example:"POST http://localhost:8480/charges"`
	}
}

func (b *builder) explain() {
	route(b, about("explainRequest", "operations", "POST /v1/explain", "Say which rule a request matches, and why, without doing it",
		"The answer comes from the rules by which the service serves requests, as if the request came from where the caller is. A credential in it is checked, and not kept."), Viewer, []semel.Code{semel.CodeUnsupported}, explainRequest)
}

func explainRequest(x *exchange, in *explainInput) (*reply[explanation], error) {
	if x.api.opts.Explain == nil {
		return nil, x.api.newProblem(semel.CodeUnsupported, "this program has its routes in its own code, and they can't be explained here")
	}
	r, body, err := pasted.Parse(in.Body.Request)
	if err != nil {
		return nil, x.api.invalid("body.request", err.Error())
	}
	r = r.WithContext(x.ctx())
	r.RemoteAddr = x.r.RemoteAddr
	found, err := x.api.opts.Explain(r, body)
	if err != nil {
		return nil, err
	}
	out := &reply[explanation]{explanation{Method: r.Method, Target: r.RequestURI, Explained: found}}
	if found.ID == (semel.ID{}) || !x.oversees(found.ID.Tenant) || door.Internal(found.ID.Operation) {
		return out, nil
	}
	rec, err := x.api.engine.Lookup(x.ctx(), found.ID)
	if err == nil {
		out.Body.Record = &met{found.ID.Encode(), rec.State, rec.Held, rec.Fingerprint == found.PayloadHash}
	} else if !errors.Is(err, semel.ErrNotFound) {
		return nil, err
	}
	return out, nil
}
