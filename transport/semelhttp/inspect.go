package semelhttp

import (
	"net/http"

	"github.com/semelhq/semel"
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
	return &Inspector{h: newHandler(g, rt, op, nil), op: op}, nil
}

// Guards reports whether the request would be guarded: its method is, and it has a key or
// would need one.
func (i *Inspector) Guards(r *http.Request) bool {
	return i.h.guards(r.Method) && (i.h.route.Key == KeyRequired || len(r.Header[i.h.route.KeyHeader]) > 0)
}

// KeyOptional reports whether requests without a key pass.
func (i *Inspector) KeyOptional() bool { return i.h.route.Key == KeyOptional }

// KeyHeader is the canonical name of the header with the key.
func (i *Inspector) KeyHeader() string { return i.h.route.KeyHeader }

// ID is the identity of the call that the request delivers, and what the call would be
// bound to. If there is none, the code is what the request would be refused with.
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

// Fingerprint digests the request. You have read its body.
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

// Keeps reports whether later deliveries would get an answer with this status and header.
// After any other answer they would run again.
func (i *Inspector) Keeps(status int, header http.Header) bool {
	return i.h.keeps(status, header[i.h.route.Profile.RetryHeader])
}

// Operation is the policy that the route stands for: its declaration with this package's
// defaults. The engine's own defaults are missing, unless the engine has the operation
// already.
func (i *Inspector) Operation() semel.Operation { return i.op }
