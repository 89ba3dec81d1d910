package semelproxy

import (
	"net/http"
	"slices"
	"strings"

	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/door/semelhttp"
)

// judge decides about a request before anything is claimed, by the request alone. In every mode
// it refuses requests that this proxy and the next hop could understand differently, and
// removes what this proxy may ignore. A request of the kind unguarded passes without a guard.
func (p *Proxy) judge(r *http.Request, mode Mode) (next *http.Request, unguarded Kind, refused *semelhttp.Refusal) {
	switch upper := strings.ToUpper(r.Method); {
	case upper != r.Method && slices.Contains(methods, upper):
		return r, "", new(semelhttp.RefusalOf(door.CodeMethodSpelling, "Methods are spelled in capitals, and "+upper+" is one. Nothing was executed."))
	case strings.ContainsFunc(r.RequestURI, func(c rune) bool { return c <= ' ' || c == 0x7f }):
		// HTTP/2 allows spaces in a target, and HTTP/1.1 would end it there.
		return r, "", new(semelhttp.RefusalOf(door.CodeAmbiguousTarget, "The target of the request has a space or a control character. Nothing was executed."))
	}
	if len(r.Header["Upgrade"]) > 0 {
		r = withoutH2C(r)
	}
	if mode == ModeOff {
		return r, "", nil
	}
	if mode == ModeEnforce {
		for _, item := range tokens(r.Header["Connection"]) {
			if name := http.CanonicalHeaderKey(item); p.protected[name] {
				return r, "", new(semelhttp.RefusalOf(door.CodeConnectionNames, "The Connection header names "+name+", which would keep it from arriving. Nothing was executed."))
			}
		}
	}
	for _, kind := range p.opts.Unguarded {
		if kind.is(r) {
			return r, kind, nil
		}
	}
	switch {
	case !isUpgrade(r):
		return r, "", nil
	case mode == ModeShadow:
		return r, KindUpgrade, nil
	case p.inspector.MayHaveKey(r) || !p.inspector.KeyOptional():
		return r, "", new(semelhttp.RefusalOf(door.CodeNotGuardable, "A request for another protocol can't be recorded and replayed, and this route does not let it pass without that. Nothing was executed."))
	}
	return r, "", nil
}

// methods are the ones that some servers recognise in any case.
var methods = []string{
	http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch,
	http.MethodDelete, http.MethodConnect, http.MethodOptions, http.MethodTrace,
}

// withoutH2C ignores an offer to continue in HTTP/2, as RFC 9110 section 7.8 allows: the offer
// is about further requests, not this one, and a tunnel to the upstream would take all of them
// past the guard.
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

// tokens returns the items of a list that may be spread over several fields.
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

// is reports whether a request says that it is of this kind.
func (k Kind) is(r *http.Request) bool {
	switch k {
	case KindUpgrade:
		return isUpgrade(r)
	case KindGRPC: // or gRPC-Web, which has the outcome after the body
		rest, ok := strings.CutPrefix(lowerMedia(r.Header.Get("Content-Type")), grpcMedia)
		return ok && (rest == "" || rest[0] == '+' || rest[0] == '-')
	case KindSSE:
		accepts := tokens(r.Header["Accept"])
		return len(accepts) > 0 && !slices.ContainsFunc(accepts, func(item string) bool { return lowerMedia(item) != eventStream })
	}
	return false
}

// isUpgrade reports whether something other than HTTP follows the request.
func isUpgrade(r *http.Request) bool {
	return r.Method == http.MethodConnect || len(r.Header["Upgrade"]) > 0 &&
		slices.ContainsFunc(tokens(r.Header["Connection"]), func(name string) bool { return strings.EqualFold(name, "upgrade") })
}

const (
	eventStream = "text/event-stream"
	grpcMedia   = "application/grpc"
)

// lowerMedia returns a media type without its parameters.
func lowerMedia(field string) string {
	media, _, _ := strings.Cut(field, ";")
	return strings.ToLower(strings.Trim(media, " \t"))
}

// refuse answers in the form of the route's profile.
func (p *Proxy) refuse(w http.ResponseWriter, r *http.Request, f semelhttp.Refusal) {
	p.guard.Refuse(w, r, p.opts.Route.Profile, f)
}

// essential are the headers that must always arrive, besides the route's and the forwarding
// ones.
var essential = []string{
	"Authorization", "Cookie", "Content-Encoding", "Content-Length", "Content-Type", "Date", "Expect", "Host", "Prefer", semelhttp.DefaultKeyHeader,
}

// protectedHeaders returns the names that no Connection header may have.
func protectedHeaders(o *Options) map[string]bool {
	names := map[string]bool{}
	for _, list := range [][]string{forwarding, essential, o.owned(), o.Route.RequestHeaders()} {
		for _, n := range list {
			names[http.CanonicalHeaderKey(n)] = true
		}
	}
	return names
}
