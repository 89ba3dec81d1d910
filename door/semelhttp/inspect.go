package semelhttp

import (
	"errors"
	"net/http"
	"slices"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/judge"
	refusal "github.com/semelhq/semel/internal/problem"
	"github.com/semelhq/semel/internal/selector"
)

// Inspector sees requests as a guarded handler of its route would, and does nothing about
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

// Guards reports whether the request would be guarded: its method is, and it may have a key
// or would need one.
func (i *Inspector) Guards(r *http.Request) bool {
	return i.h.guards(r.Method) && (i.h.route.Key == KeyRequired || i.MayHaveKey(r))
}

// GuardsMethod reports whether requests of a method are guarded, if they have a key or need
// one.
func (i *Inspector) GuardsMethod(method string) bool { return i.h.guards(method) }

// MayHaveKey reports whether a request has a key, valid or not, or may have one in its body.
// If keys are made from the content of requests, every request may.
func (i *Inspector) MayHaveKey(r *http.Request) bool {
	p := i.h.picks
	if !p.ownKey() {
		return len(r.Header[i.h.route.KeyHeader]) > 0
	}
	return p.inBody || p.template != nil || slices.ContainsFunc(p.keys, func(s selector.Selector) bool {
		_, found, err := s.Find(&selector.Input{Header: r.Header, Query: r.URL.RawQuery})
		return found || err != nil
	})
}

// KeyInBody reports whether the key may be in the body, which [Inspector.ID] then needs.
func (i *Inspector) KeyInBody() bool { return i.h.picks.ownKey() && i.h.picks.inBody }

// KeyOptional reports whether requests without a key pass.
func (i *Inspector) KeyOptional() bool { return i.h.route.Key == KeyOptional }

// KeyHeader is the canonical name of the header with the key.
func (i *Inspector) KeyHeader() string { return i.h.route.KeyHeader }

// Identified is whose call a request delivers.
type Identified struct {
	ID semel.ID
	// BoundTo is what the call would be bound to.
	BoundTo string
	// Unproved says that nothing that is recorded would be shown, see [semel.Call].
	Unproved bool
	// By is the selector that found the key, such as header:Idempotency-Key, or template.
	By string
}

// ID identifies the call that the request delivers. body is needed if [Inspector.KeyInBody]
// says so. If there is no identity, the code is what the request would be refused with;
// where keys are optional, a request with [CodeKeyMissing] would pass.
func (i *Inspector) ID(r *http.Request, body []byte) (got Identified, code semel.Code) {
	got, code, _, _ = i.identify(r, body)
	return got, code
}

// Judge is ID for a request whose body was read whole. If the request would be refused before
// the engine is asked, why is a sentence for the caller.
func (i *Inspector) Judge(r *http.Request, body []byte) (got Identified, code semel.Code, why string) {
	var found picked
	got, code, why, found = i.identify(r, body)
	if found, _, err := i.picked(r, body, found); code == "" && err == nil && found.unnumbered != "" {
		return got, semel.CodeInvalidCall, found.unnumbered
	}
	if code == "" && int64(len(body)) > i.h.route.MaxBody {
		return got, CodeBodyTooLarge, "The body is longer than this route accepts."
	}
	return got, code, why
}

// picked is what the route selects from the request, which has found a key already unless the
// route selects that, too.
func (i *Inspector) picked(r *http.Request, body []byte, found picked) (got picked, fault string, err error) {
	if i.h.picks == nil {
		return found, "", nil
	}
	err = i.with(r, body, func(sc *scratch) (err error) {
		got, fault, err = i.h.pick(r, &sc.payload)
		return err
	})
	return got, fault, err
}

// with runs f on a request whose body was read, as if the guard had read it.
func (i *Inspector) with(r *http.Request, body []byte, f func(sc *scratch) error) error {
	sc := scratches.Get().(*scratch)
	defer sc.release()
	sc.spool = spool{data: body, size: int64(len(body))}
	sc.payload = payload{spool: &sc.spool, mode: BodyRaw}
	if len(body) > 0 {
		sc.payload.mode = bodyMode(i.h.route.Body, r.Header)
	}
	if err := i.h.decode(r, sc); err != nil {
		return err
	}
	return f(sc)
}

func (i *Inspector) identify(r *http.Request, body []byte) (got Identified, code semel.Code, why string, found picked) {
	who, err := i.h.identify(r)
	if err != nil {
		return got, CodeUnidentified, whyUnidentified(err), found
	}
	if i.h.picks.ownKey() {
		found, why, _ = i.picked(r, body, found)
	} else {
		found.by = "header:" + i.h.route.KeyHeader
		found.key, _, why = requestKey(r.Header, i.h.route.KeyHeader, i.h.route.Profile.MaxKey, i.h.route.Profile.OpaqueKeys)
	}
	switch {
	case why != "":
		return got, CodeKeyInvalid, why, found
	case found.key == "" && i.h.picks.ownKey():
		return got, CodeKeyMissing, i.h.picks.keyNotFound().detail, found
	case found.key == "":
		return got, CodeKeyMissing, keyMissing(i.h.route.KeyHeader).detail, found
	}
	call := i.h.call(r, found, who)
	return Identified{call.ID(i.h.share), call.BoundTo, call.Unproved, found.by}, "", "", found
}

// whyUnidentified is what the caller would be told, and for the operator what was wrong.
func whyUnidentified(err error) string {
	if said, ok := errors.AsType[*Refused](err); ok && said.Detail != "" {
		return said.Detail
	}
	return refusal.Sentence(err.Error())
}

// Fingerprint digests the request. You have read its body.
func (i *Inspector) Fingerprint(r *http.Request, body []byte) (fp semel.Fingerprint) {
	_ = i.with(r, body, func(sc *scratch) (err error) { // it can only fail when the caller is gone
		var got picked
		if i.h.picks != nil {
			got, _, _ = i.h.pick(r, &sc.payload)
		}
		fp, err = i.h.fingerprint(r, sc, got.places)
		return err
	})
	return fp
}

// RunsAgain reports whether a later delivery would run after an answer with this status
// and header: it proves that nothing was done, or it is a failure, and the operation runs
// again after those. After any other answer later deliveries get that answer, or the call
// is held.
func (i *Inspector) RunsAgain(status int, header http.Header) bool {
	return i.h.runsAgain(i.Proves(status, header).Verdict)
}

// Proves says what an answer with this status and header proves, whose body nobody looks into.
func (i *Inspector) Proves(status int, header http.Header) judge.Finding {
	return i.h.rules.Of(judge.Answer{Status: status, Header: header})
}

// Forbidden are headers of requests that the handler's program must not get, because it might
// repeat them; see [judge.Rules.Forbidden]. Those that the route reads are none of them.
func (i *Inspector) Forbidden() []string {
	reads := i.h.route.RequestHeaders()
	return slices.DeleteFunc(i.h.rules.Forbidden(), func(name string) bool { return slices.Contains(reads, name) })
}

// Operation is the policy that the route stands for: its declaration with this package's
// defaults. The engine's own defaults are missing, unless the engine has the operation
// already.
func (i *Inspector) Operation() semel.Operation { return i.op }
