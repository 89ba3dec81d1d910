package semelproxy

import (
	"net/http"
	"slices"
	"strings"

	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/safehttp"
)

// essential are the headers that must always arrive, besides the ones of the route and of
// forwarding.
var essential = []string{
	"Authorization", "Cookie", "Content-Encoding", "Content-Length", "Content-Type", "Date", "Expect", "Host", "Prefer", semelhttp.DefaultKeyHeader,
}

// protectedHeaders are the names that no Connection header may have.
func protectedHeaders(o *Options) map[string]bool {
	names := map[string]bool{}
	for _, list := range [][]string{forwarding, essential, o.owned(), o.Route.RequestHeaders()} {
		for _, n := range list {
			names[http.CanonicalHeaderKey(n)] = true
		}
	}
	return names
}

// plain removes what this proxy may ignore from a request, and refuses, in every mode,
// what this proxy and the next hop could understand differently.
func (p *Proxy) plain(w http.ResponseWriter, r *http.Request) (*http.Request, bool) {
	if f, ambiguous := ambiguity(r); ambiguous {
		p.refuse(w, r, f)
		return nil, false
	}
	return withoutH2C(r), true
}

// ambiguity is how a request is refused that this proxy and the next hop could understand
// differently.
func ambiguity(r *http.Request) (f semelhttp.Refusal, ambiguous bool) {
	switch upper := strings.ToUpper(r.Method); {
	case upper != r.Method && slices.Contains(methods, upper):
		return semelhttp.RefusalOf(door.CodeMethodSpelling, "Methods are spelled in capitals, and "+upper+" is one. Nothing was executed."), true
	case strings.ContainsFunc(r.RequestURI, func(c rune) bool { return c <= ' ' || c == 0x7f }):
		// HTTP/2 lets them arrive, and HTTP/1.1 would end the target there.
		return semelhttp.RefusalOf(door.CodeAmbiguousTarget, "The target of the request has a space or a control character. Nothing was executed."), true
	}
	return f, false
}

// methods are the ones that some servers recognise in any spelling.
var methods = []string{
	http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch,
	http.MethodDelete, http.MethodConnect, http.MethodOptions, http.MethodTrace,
}

// withoutH2C ignores an offer to continue in HTTP/2, as RFC 9110 section 7.8 allows:
// it is about further requests, not this one, and a tunnel to the upstream would take
// all of them past the guard.
func withoutH2C(r *http.Request) *http.Request {
	offers := tokens(r.Header["Upgrade"])
	left := slices.DeleteFunc(slices.Clone(offers), func(offer string) bool { return strings.EqualFold(offer, "h2c") })
	if len(left) == len(offers) {
		return r
	}
	out := r.WithContext(r.Context())
	out.Header = r.Header.Clone()
	delete(out.Header, "Http2-Settings")
	gone := []string{"http2-settings"}
	if len(left) > 0 {
		out.Header["Upgrade"] = []string{strings.Join(left, ", ")}
	} else {
		delete(out.Header, "Upgrade")
		gone = append(gone, "upgrade")
	}
	connection := slices.DeleteFunc(tokens(r.Header["Connection"]), func(name string) bool {
		return slices.Contains(gone, strings.ToLower(name))
	})
	delete(out.Header, "Connection")
	if len(connection) > 0 {
		out.Header["Connection"] = []string{strings.Join(connection, ", ")}
	}
	return out
}

// check refuses requests that may not be claimed. It reports whether the request may go on,
// and its kind if it passes without a guard.
func (p *Proxy) check(w http.ResponseWriter, r *http.Request) (unguarded Kind, ok bool) {
	unguarded, f, refused := p.judge(r)
	if refused {
		p.refuse(w, r, f)
	}
	return unguarded, !refused
}

// judge is check without an answer: how the request is refused, if it is.
func (p *Proxy) judge(r *http.Request) (unguarded Kind, f semelhttp.Refusal, refused bool) {
	for _, item := range tokens(r.Header["Connection"]) {
		if name := http.CanonicalHeaderKey(item); p.protected[name] {
			return "", semelhttp.RefusalOf(door.CodeConnectionNames, "The Connection header names "+name+", which would keep it from arriving. Nothing was executed."), true
		}
	}
	if kind := p.named(r); kind != "" {
		return kind, f, false
	}
	if isUpgrade(r) && (p.hasKey(r) || !p.inspector.KeyOptional()) {
		return "", semelhttp.RefusalOf(door.CodeNotGuardable, "A request for another protocol can't be recorded and replayed, and this route does not let it pass without that. Nothing was executed."), true
	}
	return "", f, false
}

// named is the kind of a request that the route lets pass without a guard, and
// empty for all others.
func (p *Proxy) named(r *http.Request) Kind {
	for _, kind := range p.opts.Unguarded {
		if kind.is(r) {
			return kind
		}
	}
	return ""
}

// is reports whether a request says that it is of this kind.
func (k Kind) is(r *http.Request) bool {
	switch k {
	case KindUpgrade:
		return isUpgrade(r)
	case KindGRPC:
		return isGRPC(r.Header)
	case KindSSE:
		accepts := tokens(r.Header["Accept"])
		return len(accepts) > 0 && !slices.ContainsFunc(accepts, func(item string) bool { return lowerMedia(item) != eventStream })
	}
	return false
}

// isUpgrade reports whether what follows the request is not HTTP.
func isUpgrade(r *http.Request) bool {
	return r.Method == http.MethodConnect || len(r.Header["Upgrade"]) > 0 &&
		slices.ContainsFunc(tokens(r.Header["Connection"]), func(name string) bool { return strings.EqualFold(name, "upgrade") })
}

// isGRPC reports whether the body is one of gRPC or gRPC-Web, with the outcome behind it.
func isGRPC(h http.Header) bool {
	rest, ok := strings.CutPrefix(lowerMedia(h.Get("Content-Type")), grpcMedia)
	return ok && (rest == "" || rest[0] == '+' || rest[0] == '-')
}

// hasKey reports whether a request has a key, valid or not, or may have one in its body.
func (p *Proxy) hasKey(r *http.Request) bool { return p.inspector.MayHaveKey(r) }

// reason is why the request is not guarded, if anybody would want to know: it has
// a key, and may change something.
func (p *Proxy) reason(r *http.Request, why string) string {
	if p.hasKey(r) && (!safehttp.SafeMethod(r.Method) || isUpgrade(r)) {
		return why
	}
	return ""
}

const (
	eventStream = "text/event-stream"
	grpcMedia   = "application/grpc"
)

// lowerMedia is a media type without its parameters.
func lowerMedia(field string) string {
	media, _, _ := strings.Cut(field, ";")
	return strings.ToLower(strings.Trim(media, " \t"))
}

// tokens are the items of a list that may be spread over several fields.
func tokens(fields []string) []string {
	var items []string
	for _, field := range fields {
		for item := range strings.SplitSeq(field, ",") {
			if item = strings.Trim(item, " \t"); item != "" {
				items = append(items, item)
			}
		}
	}
	return items
}

// refuse answers in the form of the route's profile.
func (p *Proxy) refuse(w http.ResponseWriter, r *http.Request, f semelhttp.Refusal) {
	p.guard.Refuse(w, r, p.opts.Route.Profile, f)
}
