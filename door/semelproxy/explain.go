package semelproxy

import (
	"net/http"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/door/semelhttp"
)

// Outcome is what a proxy does with a request.
type Outcome string

// The outcomes.
const (
	Guarded Outcome = "guarded" // the call is executed once
	Passed  Outcome = "passed"  // it is passed on without a guard
	Refused Outcome = "refused" // it is refused before it reaches the engine
)

// Explanation says what a proxy would do with a request, and why.
type Explanation struct {
	Outcome Outcome
	// Why is a sentence. Code is the refusal's, if it is refused.
	Why  string
	Code semel.Code
	// Identified is the call that the request delivers, and Fingerprint the request's. They are
	// set if Outcome is [Guarded].
	semelhttp.Identified
	Fingerprint semel.Fingerprint
	// Operation is the name of the route's operation.
	Operation string
}

// Explain says what ServeHTTP would do with a request. It asks neither the upstream nor the
// store. It uses up the body.
func (p *Proxy) Explain(r *http.Request, body []byte) Explanation {
	x := Explanation{Operation: p.opts.Route.Operation.Name}
	end := func(o Outcome, code semel.Code, why string) Explanation {
		x.Outcome, x.Code, x.Why = o, code, why
		return x
	}
	r, kind, refused := p.judge(r, p.opts.Mode)
	switch {
	case refused != nil:
		return end(Refused, refused.Code, refused.Detail)
	case p.opts.Mode == ModeOff:
		return end(Passed, "", "The mode of the route is off, so it guards nothing.")
	case p.opts.Mode == ModeShadow:
		return end(Passed, "", "The mode of the route is shadow, so it says in the log what it would do, and guards nothing.")
	case kind != "":
		return end(Passed, "", "The route lets requests of the kind "+string(kind)+" pass (unguarded).")
	case !p.inspector.GuardsMethod(r.Method):
		return end(Passed, "", "The route doesn't guard the method "+r.Method+".")
	case !p.inspector.MayHaveKey(r) && p.inspector.KeyOptional():
		return end(Passed, "", "The route guards requests with a key, and this one has none.")
	}
	got, code, why := p.inspector.Judge(r, body)
	switch {
	case code == door.CodeKeyMissing && p.inspector.KeyOptional():
		return end(Passed, "", "The route guards requests with a key, and this one has none.")
	case code != "":
		return end(Refused, code, why)
	}
	x.Identified, x.Fingerprint = got, p.inspector.Fingerprint(r, body)
	return end(Guarded, "", "The route guards the method "+r.Method+", and the request has a key.")
}
