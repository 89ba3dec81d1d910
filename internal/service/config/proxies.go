package config

import (
	"errors"
	"net/netip"
	"strings"

	"github.com/semelhq/semel/door/semelhttp"
)

// Trusted are the networks of the proxies in front. It skips invalid ones, which [Load]
// has refused.
func (l *Listener) Trusted() []netip.Prefix {
	var networks []netip.Prefix
	for _, text := range l.TrustedProxies {
		if n, err := parseNetwork(text); err == nil {
			networks = append(networks, n)
		}
	}
	return networks
}

func parseNetwork(text string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(text); err == nil {
		addr = addr.Unmap()
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	n, err := netip.ParsePrefix(text)
	if err == nil && n.Masked() != n {
		err = errors.New("it has bits set after its prefix")
	}
	return n, err
}

func (v *validator) trustedProxies() {
	for at, text := range items("listen.trusted_proxies", v.c.Listen.TrustedProxies) {
		switch n, err := parseNetwork(*text); {
		case err != nil:
			v.bad(at, "write such as 10.0.0.5 or 10.0.0.0/8", "%q is neither an address nor a network in CIDR form", *text)
		case n.Bits() == 0:
			v.bad(at, "name the addresses of the proxies", "%s covers all addresses, so anybody could fake where a request came from", *text)
		}
	}
}

// routeHeaders runs the middleware's own checks of headers, methods and statuses.
func (v *validator) routeHeaders(path string, r Route) {
	all := v.c.Guarded(r)
	if k := r.KeyTemplate; k.Format != "" && k.Template+k.Scope+k.ScopeField != "" {
		v.bad(path+".key_template.format", "give either", "a format has its own template and scope")
	}
	if op := v.c.operation(r.Operation); op != nil && op.Sequenced != (r.Sequence != "") {
		v.bad(path+".sequence", "write such as sequence: header:X-Sequence in the route and sequenced: true in the operation, or neither", "the route and its operation don't agree whether calls have numbers")
	}
	for _, part := range []struct {
		name string
		rt   semelhttp.Route
	}{
		{"sequence", semelhttp.Route{Sequence: r.Sequence}},
		{"key_from", semelhttp.Route{KeyFrom: r.KeyFrom}},
		{"key_template", semelhttp.Route{KeyTemplate: all.KeyTemplate}},
		{"fingerprint", semelhttp.Route{FingerprintOnly: r.Fingerprint.Only, FingerprintIgnore: r.Fingerprint.Ignore, Body: r.Body, Profile: all.Profile}},
		{"attributes", semelhttp.Route{Attributes: all.Attributes}},
		{"methods", semelhttp.Route{Methods: r.Methods}},
		{"fingerprint_headers", semelhttp.Route{FingerprintHeaders: r.FingerprintHeaders, KeyHeader: r.KeyHeader}},
		{"origins", semelhttp.Route{Origins: r.Origins}},
		{"keep_headers", semelhttp.Route{KeepHeaders: r.KeepHeaders, KeyHeader: r.KeyHeader, Profile: r.Guarded().Profile}},
	} {
		if v.faultyBelow(path + "." + part.name) {
			continue
		}
		if fault := routeFault(part.rt); fault != "" {
			v.bad(path+"."+part.name, "", "%s", strings.TrimPrefix(fault, part.name+": "))
		}
	}
}

// routeFault is what the middleware has against a part of a route; empty if nothing.
func routeFault(part semelhttp.Route) string {
	err := part.Validate()
	if err == nil {
		return ""
	}
	return engineFault(err, "", Route{}, KeyTemplate{})
}
