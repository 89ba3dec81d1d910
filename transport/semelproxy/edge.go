package semelproxy

import (
	"net/http"
	"slices"
	"strings"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/transport/semelhttp"
)

// Codes of refusals that this package makes itself.
const (
	// CodeConnectionNames: the Connection header names one that must arrive.
	CodeConnectionNames semel.Code = "connection_names_header"
	// CodeAmbiguousFraming: where the request ends can be read in two ways.
	CodeAmbiguousFraming semel.Code = "ambiguous_framing"
	// CodeNotGuardable: the request can't be guarded, and the route does not let
	// it pass unguarded.
	CodeNotGuardable semel.Code = "not_guardable"
	// CodeUnreachable: there was no connection to the upstream; nothing was sent.
	CodeUnreachable semel.Code = "upstream_unreachable"
)

// forwarding are the headers by which proxies tell where a request came from.
// What clients send under these names is removed.
var forwarding = []string{
	"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Port", "X-Forwarded-Prefix",
	"X-Forwarded-Scheme", "X-Forwarded-Server", "X-Forwarded-Ssl", "X-Forwarded-User", "X-Real-Ip", "X-Client-Ip",
	"X-Cluster-Client-Ip", "True-Client-Ip", "X-Original-Host", "X-Original-Url", "X-Rewrite-Url",
}

// essential are the headers that must arrive in any case, besides those of the
// route and of forwarding.
var essential = []string{
	"Authorization", "Cookie", "Content-Encoding", "Content-Length", "Content-Type", "Date", "Expect", "Host", "Prefer", semelhttp.DefaultKeyHeader,
}

// protectedHeaders are the names that no Connection header may have.
func protectedHeaders(o *Options) map[string]bool {
	names := map[string]bool{}
	for _, list := range [][]string{forwarding, essential, o.owned(), o.Route.FingerprintHeaders, {o.Route.KeyHeader}} {
		for _, n := range list {
			if n != "" {
				names[http.CanonicalHeaderKey(n)] = true
			}
		}
	}
	if c := o.Route.Credential; c != "" && !strings.HasPrefix(c, "cookie:") {
		names[http.CanonicalHeaderKey(c)] = true
	}
	return names
}

// check refuses what may not be claimed. It reports whether the request may go
// on, and whether it is one that passes without a guard.
func (p *Proxy) check(w http.ResponseWriter, r *http.Request) (unguarded, ok bool) {
	for _, field := range r.Header["Connection"] {
		for item := range strings.SplitSeq(field, ",") {
			name := http.CanonicalHeaderKey(strings.Trim(item, " \t"))
			if p.protected[name] {
				p.refuse(w, semelhttp.Refusal{
					Status: http.StatusBadRequest, Code: CodeConnectionNames, Title: "Connection names a header",
					Detail: "The Connection header names " + name + ", which would keep it from arriving. Nothing was executed.",
				})
				return false, false
			}
		}
	}
	kind, what := kindOf(r)
	if kind == "" {
		return false, true
	}
	if slices.Contains(p.opts.Unguarded, kind) {
		return true, true
	}
	p.refuse(w, semelhttp.Refusal{
		Status: http.StatusNotImplemented, Code: CodeNotGuardable, Title: "Can't be guarded",
		Detail: what + " can't be recorded and replayed, and this route does not let it pass without that. Nothing was executed.",
	})
	return false, false
}

// kindOf tells whether a request is of a kind that can't be guarded, and what to
// call it. One that accepts other answers besides an event stream is not: if it
// gets a stream, that leaves a tombstone.
func kindOf(r *http.Request) (Kind, string) {
	if r.Method == http.MethodConnect || len(r.Header["Upgrade"]) > 0 && hasToken(r.Header["Connection"], "upgrade") {
		return KindUpgrade, "A request for another protocol"
	}
	if media, ok := strings.CutPrefix(lowerMedia(r.Header.Get("Content-Type")), "application/grpc"); ok && (media == "" || media[0] == '+' || media[0] == '-') {
		return KindGRPC, "A gRPC call"
	}
	if accepts := r.Header["Accept"]; len(accepts) > 0 && onlyEvents(accepts) {
		return KindSSE, "A stream of events"
	}
	return "", ""
}

func onlyEvents(fields []string) bool {
	seen := false
	for _, field := range fields {
		for item := range strings.SplitSeq(field, ",") {
			switch lowerMedia(item) {
			case "":
			case eventStream:
				seen = true
			default:
				return false
			}
		}
	}
	return seen
}

const eventStream = "text/event-stream"

// lowerMedia is a media type without its parameters.
func lowerMedia(field string) string {
	media, _, _ := strings.Cut(field, ";")
	return strings.ToLower(strings.Trim(media, " \t"))
}

func hasToken(fields []string, token string) bool {
	for _, field := range fields {
		for item := range strings.SplitSeq(field, ",") {
			if strings.EqualFold(strings.Trim(item, " \t"), token) {
				return true
			}
		}
	}
	return false
}

// refuse answers in the form of the route's profile.
func (p *Proxy) refuse(w http.ResponseWriter, f semelhttp.Refusal) {
	p.guard.Refuse(w, p.opts.Route.Profile, f)
}
