package semelhttp

import (
	"net/http"

	"github.com/semelhq/semel"
)

// Inspector sees requests as a guarded handler of its route would, and does
// nothing about them: no operation is registered and the store is not asked. It
// may be used concurrently.
type Inspector struct {
	h  handler
	op semel.Operation
}

// Inspect makes an inspector. Every problem with the route is reported at once.
func (g *Guard) Inspect(rt Route) (*Inspector, error) {
	rt = rt.withDefaults()
	if err := rt.validate(); err != nil {
		return nil, err
	}
	op, _ := rt.operation(g.engine)
	return &Inspector{h: newHandler(g, rt, op, nil), op: op}, nil
}

// Guards reports whether the request would be guarded: its method is, and it has
// a key or would need one.
func (i *Inspector) Guards(r *http.Request) bool {
	return i.h.guards(r.Method) && (i.h.route.Key == KeyRequired || len(r.Header[i.h.route.KeyHeader]) > 0)
}

// KeyOptional reports whether requests without a key pass.
func (i *Inspector) KeyOptional() bool { return i.h.route.Key == KeyOptional }

// KeyHeader is the canonical name of the header with the key.
func (i *Inspector) KeyHeader() string { return i.h.route.KeyHeader }

// ID is the identity of the call that the request is a delivery of, and what it would be
// bound to. The code is why there is none: what the request would be refused with.
func (i *Inspector) ID(r *http.Request) (id semel.ID, boundTo string, code semel.Code) {
	key, present, fault := requestKey(r.Header, i.h.route.KeyHeader, i.h.route.Profile.MaxKey, i.h.route.Profile.OpaqueKeys)
	who, err := i.h.identify(r)
	switch {
	case err != nil:
		return id, "", CodeUnidentified
	case !present:
		return id, "", CodeKeyMissing
	case fault != "":
		return id, "", CodeKeyInvalid
	}
	call := i.h.call(r, key, who)
	return call.ID(i.h.share), call.BoundTo, ""
}

// Fingerprint digests the request with this body, which the caller has read.
func (i *Inspector) Fingerprint(r *http.Request, body []byte) semel.Fingerprint {
	sc := scratches.Get().(*scratch)
	defer sc.release()
	sc.digest = i.h.appendTarget(sc.digest[:0], r)
	mode := BodyRaw
	if len(body) > 0 {
		mode = i.h.bodyMode(r.Header)
	}
	return i.h.digestSmall(r, mode, body, sc)
}

// Keeps reports whether an answer with this status and header is what later
// deliveries would get. After any other they would run again.
func (i *Inspector) Keeps(status int, header http.Header) bool {
	return i.h.keeps(status, header[i.h.route.Profile.RetryHeader])
}

// Operation is the policy that the route stands for: its declaration with this
// package's defaults. What only the engine fills in is left out, unless the engine
// knows the operation already.
func (i *Inspector) Operation() semel.Operation { return i.op }
