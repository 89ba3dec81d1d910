package semelproxy

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/textproto"
	"slices"
	"strings"

	"github.com/semelhq/semel/door/semelhttp"
)

// rewrite makes the upstream's request from the client's. ReverseProxy has already removed
// headers that belong only to the client's connection.
func (p *Proxy) rewrite(pr *httputil.ProxyRequest) {
	out := pr.Out
	set := func(name, value string) {
		if name != "" && value != "" {
			out.Header.Set(name, value)
		}
	}
	p.strip(out.Header)
	if p.opts.OwnCredential != nil && p.opts.OwnCredential(out.Context()) {
		delete(out.Header, "Authorization")
	}
	delete(out.Header, "Expect") // a guarded body is here already
	if body, ok := pr.In.Body.(*arriving); ok && out.Trailer != nil {
		p.strip(out.Trailer)
		body.trailer = out.Trailer
	}
	attempt, guarded := semelhttp.Attempt(out.Context())
	if guarded && out.Body != nil {
		out.Trailer = nil // deliveries aren't compared by it
		holdBody(out, pr.In)
	}
	// ReverseProxy omits pairs that it can't parse. The upstream should decide about them.
	out.URL.RawQuery = pr.In.URL.RawQuery
	pr.SetURL(p.opts.Upstream)
	if p.keepsHost {
		out.Host = pr.In.Host
	}
	p.forward(pr)
	if p.opts.Identity != nil && (p.opts.TenantHeader != "" || p.opts.PrincipalHeader != "") {
		if tenant, principal, err := p.opts.Identity(pr.In); err == nil {
			set(p.opts.TenantHeader, tenant)
			set(p.opts.PrincipalHeader, principal)
		}
	}
	set("Traceparent", p.tap.Trace(out.Context()))
	if guarded && p.opts.PassKey != "" {
		set(p.opts.PassKey, attempt.ID().Key)
	}
	if call, ok := callOf(out.Context()); ok {
		set(p.opts.EffectHeader, call.effect)
	}
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

// holdBody replaces the body, which the guard has already read, with a copy in memory if the
// guard has one, so that net/http sends it in one packet with the head. Otherwise it is read
// from its file. Either can be read again for another connection.
func holdBody(out, in *http.Request) {
	kept := in.Body.(interface {
		Copy() ([]byte, bool)
		Rewind()
	})
	body, inMemory := kept.Copy()
	if !inMemory {
		out.GetBody = func() (io.ReadCloser, error) {
			kept.Rewind()
			return io.NopCloser(in.Body), nil
		}
		return
	}
	out.ContentLength, out.TransferEncoding = int64(len(body)), nil
	if len(body) == 0 {
		out.Body, out.GetBody = nil, nil // as if the client had sent none
		return
	}
	out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	out.Body, _ = out.GetBody() // doesn't fail
}

// forward adds the headers that say where a request came from. It keeps and extends a
// trusted proxy's.
func (p *Proxy) forward(pr *httputil.ProxyRequest) {
	out := pr.Out.Header
	trusted := false
	if at, err := netip.ParseAddrPort(pr.In.RemoteAddr); err == nil {
		addr := at.Addr().Unmap().WithZone("")
		trusted = slices.ContainsFunc(p.opts.TrustedProxies, func(n netip.Prefix) bool { return n.Contains(addr) })
	}
	for _, name := range forwarding {
		delete(out, name)
		if !trusted {
			continue
		}
		if values := pr.In.Header[name]; len(values) > 0 {
			out[name] = slices.Clone(values)
		}
	}
	const toHost, proto = "X-Forwarded-Host", "X-Forwarded-Proto"
	said := [...][]string{out[toHost], out[proto]}
	pr.SetXForwarded() // appends to X-Forwarded-For and replaces the others
	for i, name := range [...]string{toHost, proto} {
		if len(said[i]) > 0 {
			out[name] = said[i]
		}
	}
	prior := out["Forwarded"]
	if len(prior) == 0 {
		return
	}
	if host, _, err := net.SplitHostPort(pr.In.RemoteAddr); err == nil {
		// The address in the form of RFC 7239 section 6.
		node, _, _ := strings.Cut(host, "%")
		if strings.Contains(node, ":") {
			node = `"[` + node + `]"`
		} else {
			node = textproto.TrimString(node)
		}
		out["Forwarded"] = []string{strings.Join(append(prior, "for="+node), ", ")}
	}
}

// forwarding are the headers that say where a request came from. They are removed from
// requests of clients, except trusted proxies.
var forwarding = []string{
	"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Port", "X-Forwarded-Prefix",
	"X-Forwarded-Scheme", "X-Forwarded-Server", "X-Forwarded-Ssl", "X-Forwarded-User", "X-Real-Ip", "X-Client-Ip",
	"X-Cluster-Client-Ip", "True-Client-Ip", "X-Original-Host", "X-Original-Url", "X-Rewrite-Url",
}

// HostRule determines which Host the upstream gets.
type HostRule string

// The rules.
const (
	// HostAuto passes the client's, except to an https upstream, which gets its own name. A key
	// that was used at one host name is refused at another. The default.
	HostAuto HostRule = "auto"
	// HostAlways passes the client's, and host names are different services: the same key at
	// two of them is two calls.
	HostAlways HostRule = "always"
	// HostNever sends the upstream's own.
	HostNever HostRule = "never"
)

var hostRules = []HostRule{"", HostAuto, HostAlways, HostNever}
