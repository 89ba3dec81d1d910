package semelproxy

import (
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/textproto"
	"slices"
	"strings"
)

// forwarding are the headers that say where a request came from. They are removed from
// requests of clients, except trusted proxies.
var forwarding = []string{
	"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Port", "X-Forwarded-Prefix",
	"X-Forwarded-Scheme", "X-Forwarded-Server", "X-Forwarded-Ssl", "X-Forwarded-User", "X-Real-Ip", "X-Client-Ip",
	"X-Cluster-Client-Ip", "True-Client-Ip", "X-Original-Host", "X-Original-Url", "X-Rewrite-Url",
}

// strip removes headers that no client may send to the upstream, even if they are spelled
// with underscores, because many servers read underscores as hyphens.
func (p *Proxy) strip(h http.Header) {
	for name := range h {
		plain := http.CanonicalHeaderKey(strings.ReplaceAll(name, "_", "-"))
		if p.owned[plain] || plain != name && (p.protected[plain] || slices.Contains(framingHeaders, plain)) {
			delete(h, name)
		}
	}
}

// framingHeaders are the headers that determine where a request ends.
var framingHeaders = []string{"Connection", "Content-Length", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

// forward adds the headers that say where a request came from. It keeps and extends a
// trusted proxy's.
func (p *Proxy) forward(pr *httputil.ProxyRequest) {
	out := pr.Out.Header
	trusted := p.trusts(pr.In.RemoteAddr)
	for _, name := range forwarding {
		delete(out, name)
		if values := pr.In.Header[name]; trusted && len(values) > 0 {
			out[name] = slices.Clone(values)
		}
	}
	said := map[string][]string{}
	for _, name := range []string{"X-Forwarded-Host", "X-Forwarded-Proto"} {
		said[name] = out[name]
	}
	pr.SetXForwarded() // appends to X-Forwarded-For and makes the others anew
	for name, values := range said {
		if len(values) > 0 {
			out[name] = values
		}
	}
	if prior := out["Forwarded"]; len(prior) > 0 {
		if node, ok := forwardedNode(pr.In.RemoteAddr); ok {
			out["Forwarded"] = []string{strings.Join(append(prior, "for="+node), ", ")}
		}
	}
}

// trusts reports whether a request comes from a proxy that is trusted.
func (p *Proxy) trusts(remote string) bool {
	if len(p.opts.TrustedProxies) == 0 {
		return false
	}
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return false
	}
	addr := at.Addr().Unmap().WithZone("")
	return slices.ContainsFunc(p.opts.TrustedProxies, func(n netip.Prefix) bool { return n.Contains(addr) })
}

// forwardedNode is an address as RFC 7239 section 6 has it.
func forwardedNode(remote string) (string, bool) {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return "", false
	}
	host, _, _ = strings.Cut(host, "%")
	if strings.Contains(host, ":") {
		return `"[` + host + `]"`, true
	}
	return textproto.TrimString(host), true
}

// HostRule determines which Host the upstream gets.
type HostRule string

// The rules.
const (
	// HostAuto is the client's, except for an https upstream, which gets its own name. A
	// key that was used at one host name is refused at another. The default.
	HostAuto HostRule = "auto"
	// HostAlways is the client's, and host names are different services: the same key
	// at two of them is two calls.
	HostAlways HostRule = "always"
	// HostNever is the upstream's own.
	HostNever HostRule = "never"
)

var hostRules = []HostRule{"", HostAuto, HostAlways, HostNever}

// preserves reports whether the upstream gets the client's Host.
func (o *Options) preserves() bool {
	return o.PreserveHost == HostAlways || o.PreserveHost != HostNever && o.Upstream.Scheme != "https"
}
