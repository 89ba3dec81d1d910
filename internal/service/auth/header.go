package auth

import (
	"net/http"
	"net/netip"
	"slices"
)

type trustedHeader struct {
	from                     []netip.Prefix
	tenant, principal, roles string // canonical, may be empty
}

func newTrustedHeader(s TrustedHeader) *trustedHeader {
	if len(s.From) == 0 {
		return nil
	}
	h := &trustedHeader{
		tenant: http.CanonicalHeaderKey(s.Tenant), principal: http.CanonicalHeaderKey(s.Principal), roles: http.CanonicalHeaderKey(s.Roles),
	}
	for _, text := range s.From {
		h.from = append(h.from, netip.MustParsePrefix(text))
	}
	return h
}

func (h *trustedHeader) trusts(remote string) bool {
	peer, err := netip.ParseAddrPort(remote)
	if err != nil {
		return false // a Unix socket, which has no address
	}
	addr := peer.Addr().Unmap().WithZone("")
	return slices.ContainsFunc(h.from, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// byHeader identifies the caller by a trusted proxy's fields, which count from nobody else.
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
		id.grant(splitRoles(r.Header.Get(h.roles)), roleOf)
	}
	return id, nil
}

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
