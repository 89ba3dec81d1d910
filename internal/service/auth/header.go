package auth

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// trustedHeader is a checked TrustedHeader.
type trustedHeader struct {
	from                     []netip.Prefix
	tenant, principal, roles string // canonical, may be empty
}

// otherUses are fields with another meaning.
var otherUses = []string{"Authorization", "Connection", "Content-Length", "Cookie", "Host", "Idempotency-Key", "Transfer-Encoding"}

func (a *Authenticator) addTrustedHeader(s TrustedHeader, f *faults) {
	if len(s.From) == 0 {
		return
	}
	h := &trustedHeader{}
	for i, text := range s.From {
		prefix, err := parsePrefix(text)
		if err != nil {
			f.add(fmt.Sprintf("trusted_header.from[%d]", i), err)
			continue
		}
		h.from = append(h.from, prefix)
	}
	seen := map[string]bool{}
	name := func(field, text string) string {
		canonical := http.CanonicalHeaderKey(text)
		switch {
		case text == "":
		case strings.Trim(strings.ToLower(text), "abcdefghijklmnopqrstuvwxyz0123456789-") != "":
			f.add("trusted_header."+field, fmt.Errorf("%q is not the name of a header, which has letters, digits and hyphens", text))
		case slices.Contains(otherUses, canonical):
			f.add("trusted_header."+field, fmt.Errorf("%q has another use", text))
		case seen[canonical]:
			f.add("trusted_header."+field, fmt.Errorf("%q is named twice", text))
		}
		seen[canonical] = true
		return canonical
	}
	h.tenant, h.principal, h.roles = name("tenant", s.Tenant), name("principal", s.Principal), name("roles", s.Roles)
	a.header = h
}

// parsePrefix parses a range of addresses. It refuses the range of all addresses.
func parsePrefix(text string) (netip.Prefix, error) {
	prefix, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		return netip.Prefix{}, fmt.Errorf("%q is not a range such as 10.0.0.0/8", text)
	case prefix.Bits() == 0:
		return netip.Prefix{}, fmt.Errorf("%q covers all addresses, so anybody could claim to be anyone", text)
	case prefix.Addr().Is4In6():
		return netip.Prefix{}, fmt.Errorf("%q is written as IPv6; write the IPv4 range", text)
	}
	return prefix.Masked(), nil
}

// trusts reports whether the request came from one of the proxy's addresses.
func (h *trustedHeader) trusts(remote string) bool {
	peer, err := netip.ParseAddrPort(remote)
	if err != nil {
		return false // a Unix socket, which has no address
	}
	addr := peer.Addr().Unmap().WithZone("")
	return slices.ContainsFunc(h.from, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// byHeader identifies the caller by the fields of a trusted proxy. It ignores these
// fields if somebody else sends them.
func (a *Authenticator) byHeader(r *http.Request) (Identity, error) {
	h := a.header
	if h == nil || !h.trusts(r.RemoteAddr) {
		return Identity{}, errNone
	}
	present := 0
	for _, name := range h.names() {
		switch n := len(r.Header[name]); {
		case n > 1:
			return Identity{}, bad(invalidRequest, "there is more than one field "+name)
		case n == 1:
			present++
		}
	}
	if present == 0 {
		return Identity{}, errNone
	}
	id := Identity{Principal: r.Header.Get(h.principal), Method: MethodHeader}
	if err := checkPrincipal(id.Principal); err != nil {
		return Identity{}, bad(invalidRequest, "the field "+h.principal+" "+err.Error())
	}
	if h.tenant != "" {
		if _, ok := r.Header[h.tenant]; !ok {
			return Identity{}, bad(invalidRequest, "the field "+h.tenant+" is missing")
		}
		id.Tenant = r.Header.Get(h.tenant)
		if err := checkText(id.Tenant); err != nil {
			return Identity{}, bad(invalidRequest, "the field "+h.tenant+" "+err.Error())
		}
	}
	if h.roles != "" {
		names := splitRoles(r.Header.Get(h.roles))
		id.Roles, id.Rights = knownRoles(names), otherNames(names)
	}
	return id, nil
}

// names are the fields that are configured.
func (h *trustedHeader) names() []string {
	return slices.DeleteFunc([]string{h.tenant, h.principal, h.roles}, func(name string) bool { return name == "" })
}

// IdentityHeaders returns the header fields that say who calls, in canonical form. Only
// the trusted proxy may set them, and no caller may name them in Connection.
func (a *Authenticator) IdentityHeaders() []string {
	if a.header == nil {
		return nil
	}
	return a.header.names()
}
