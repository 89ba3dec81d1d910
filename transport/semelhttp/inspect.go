package semelhttp

import (
	"net/http"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/transport/judge"
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

// RunsAgain reports whether a later delivery would run after an answer with this status
// and header: it proves that nothing was done, or it is a failure, and the operation runs
// again after those. After any other answer later deliveries get that answer, or the call
// is held.
func (i *Inspector) RunsAgain(status int, header http.Header) bool {
	v := i.h.judge(status, header).Verdict
	return v == judge.Aborted || v == judge.Failed && !i.h.keeps(v)
}

// Operation is the policy that the route stands for: its declaration with this package's
// defaults. The engine's own defaults are missing, unless the engine has the operation
// already.
func (i *Inspector) Operation() semel.Operation { return i.op }
