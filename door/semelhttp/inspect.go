package semelhttp

import (
	"errors"
	"net/http"
	"slices"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/door/judge"
	"github.com/semelhq/semel/internal/extract"
	"github.com/semelhq/semel/internal/origin"
	"github.com/semelhq/semel/internal/payload"
	refusal "github.com/semelhq/semel/internal/problem"
)

// Inspector looks at requests as a guarded handler of its route would, but does nothing with
// them: it registers no operation and doesn't use the store. It may be used concurrently.
type Inspector struct {
	h  handler
	op semel.Operation
}

// Inspect makes an inspector. The error names everything that is wrong with the route.
func (g *Guard) Inspect(rt Route) (*Inspector, error) {
	rt = rt.withDefaults()
	if err := rt.validate(); err != nil {
		return nil, err
	}
	op, _ := rt.operation(g.engine)
	return &Inspector{h: newHandler(g, rt, op), op: op}, nil
}

// Guards reports whether the request would be guarded: its method is guarded, and it may have a
// key or needs one.
func (i *Inspector) Guards(r *http.Request) bool {
	return i.h.guards(r.Method) && (i.h.route.Key == KeyRequired || i.MayHaveKey(r))
}

// GuardsMethod reports whether requests of a method are guarded, if they have a key or need
// one.
func (i *Inspector) GuardsMethod(method string) bool { return i.h.guards(method) }

// MayHaveKey reports whether a request has a key, valid or not, or may have one in its body.
// With a KeyTemplate, that's every request.
func (i *Inspector) MayHaveKey(r *http.Request) bool {
	if i.h.ownKey {
		return i.h.extract.MayHaveKey(r)
	}
	return len(r.Header[i.h.route.KeyHeader]) > 0
}

// KeyInBody reports whether the key may be in the body, which [Inspector.ID] then needs.
func (i *Inspector) KeyInBody() bool { return i.h.extract.KeyInBody() }

// ForPage wraps the writer for a request that a handler answers outside the guard: pages of the
// route's Origins can read the answer as they can a guarded handler's.
func (i *Inspector) ForPage(w http.ResponseWriter, r *http.Request) http.ResponseWriter {
	rt := &i.h.route
	return origin.Own(origin.Writer(w, r, rt.Origins, rt.KeyHeader, rt.Profile.Marker))
}

// KeyOptional reports whether requests without a key pass.
func (i *Inspector) KeyOptional() bool { return i.h.route.Key == KeyOptional }

// KeyHeader returns the canonical name of the header with the key.
func (i *Inspector) KeyHeader() string { return i.h.route.KeyHeader }

// Identified is the call that a request delivers.
type Identified struct {
	ID semel.ID
	// BoundTo is the value that the call would be bound to.
	BoundTo string
	// Unproved says that the caller would see nothing recorded, see [semel.Call].
	Unproved bool
	// By is the selector that found the key, such as header:Idempotency-Key, or template.
	By string
}

// ID identifies the call that the request delivers. body is needed if [Inspector.KeyInBody]
// says so. If there is no identity, the code says why the request would be refused; if keys are
// optional, a request with [door.CodeKeyMissing] would pass.
func (i *Inspector) ID(r *http.Request, body []byte) (got Identified, code semel.Code) {
	got, code, _ = i.identify(r, body)
	return got, code
}

// Judge is ID for a request and its whole body. If the request would be refused before it
// reaches the engine, why is a sentence for the caller.
func (i *Inspector) Judge(r *http.Request, body []byte) (got Identified, code semel.Code, why string) {
	if got, code, why = i.identify(r, body); code != "" {
		return got, code, why
	}
	found, err := i.find(r, body, nil)
	switch {
	case err == nil && found.Invalid != "":
		return got, semel.CodeInvalidCall, found.Invalid
	case int64(len(body)) > i.h.route.MaxBody:
		return got, door.CodeBodyTooLarge, "The body is longer than this route accepts."
	}
	return got, "", ""
}

// find examines a request with this body, and then shows the payload to then, unless that is nil.
func (i *Inspector) find(r *http.Request, body []byte, then func(p *payload.Payload, found *extract.Found)) (found extract.Found, err error) {
	sc := scratches.Get().(*scratch)
	defer sc.release()
	if err := sc.payload.Hold(&i.h.payload, r, body); err != nil {
		return found, err
	}
	found, err = i.h.extract.From(r, &sc.payload)
	if then != nil {
		then(&sc.payload, &found)
	}
	return found, err
}

func (i *Inspector) identify(r *http.Request, body []byte) (got Identified, code semel.Code, why string) {
	who, err := i.h.caller(r)
	if err != nil {
		return got, door.CodeUnidentified, whyUnidentified(err)
	}
	var found extract.Found
	if i.h.ownKey {
		found, _ = i.find(r, body, nil)
	} else {
		rt := &i.h.route
		found.By = "header:" + rt.KeyHeader
		found.Key, _, found.Fault = extract.HeaderKey(r.Header, rt.KeyHeader, rt.Profile.MaxKey, rt.Profile.OpaqueKeys)
	}
	switch {
	case found.Fault != "":
		return got, door.CodeKeyInvalid, found.Fault
	case found.Key == "":
		return got, door.CodeKeyMissing, i.h.keyMissing().Detail
	}
	call := i.h.call(r, &found, who)
	return Identified{call.ID(i.h.share), call.BoundTo, call.Unproved, found.By}, "", ""
}

// whyUnidentified returns the sentence for the caller or, if there is none, the error for the
// operator.
func whyUnidentified(err error) string {
	if said, ok := errors.AsType[*Refused](err); ok && said.Detail != "" {
		return said.Detail
	}
	return refusal.Sentence(err.Error())
}

// Fingerprint digests a request. Pass its body, which you have read.
func (i *Inspector) Fingerprint(r *http.Request, body []byte) (fp semel.Fingerprint) {
	_, _ = i.find(r, body, func(p *payload.Payload, found *extract.Found) {
		fp, _ = p.Fingerprint(found.Places) // it only fails when the caller is gone
	})
	return fp
}

// RunsAgain reports whether a later delivery would run after an answer with this status and
// header: the answer proves that nothing was done, or it is a failure after which the operation
// runs again. After any other answer later deliveries get that answer, or the call is held.
func (i *Inspector) RunsAgain(status int, header http.Header) bool {
	return i.h.runsAgain(i.Proves(status, header).Verdict)
}

// Proves judges an answer by its status and header, without its body.
func (i *Inspector) Proves(status int, header http.Header) judge.Finding {
	return i.h.rules.Of(judge.Answer{Status: status, Header: header})
}

// Forbidden returns request headers that the handler's program must not get, because it might
// copy them into its answer; see [judge.Rules.Forbidden]. Headers that the route reads are not
// among them.
func (i *Inspector) Forbidden() []string {
	reads := i.h.route.RequestHeaders()
	return slices.DeleteFunc(i.h.rules.Forbidden(), func(name string) bool { return slices.Contains(reads, name) })
}

// Operation returns the policy that the route stands for: its declaration with this package's
// defaults. It lacks the engine's own defaults, unless the engine already has the operation.
func (i *Inspector) Operation() semel.Operation { return i.op }
