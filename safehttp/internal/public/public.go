// Package public knows which addresses are on the public internet.
package public

import (
	"net/netip"
	"slices"
)

// reserved are the ranges off the public internet that package netip doesn't recognise.
var reserved = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),
	netip.MustParsePrefix("100.64.0.0/10"), // shared by carriers
	netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("192.0.2.0/24"),   // documentation
	netip.MustParsePrefix("192.88.99.0/24"), // 6to4 relays, deprecated
	netip.MustParsePrefix("198.18.0.0/15"),
	netip.MustParsePrefix("198.51.100.0/24"),
	netip.MustParsePrefix("203.0.113.0/24"),
	netip.MustParsePrefix("240.0.0.0/4"),
	netip.MustParsePrefix("::/96"), // IPv4-compatible
	netip.MustParsePrefix("64:ff9b:1::/48"),
	netip.MustParsePrefix("100::/64"),
	netip.MustParsePrefix("2001::/23"), // Teredo and others
	netip.MustParsePrefix("2001:db8::/32"),
	netip.MustParsePrefix("3fff::/20"), // documentation
	netip.MustParsePrefix("fec0::/10"),
}

// nat64 and sixToFour addresses contain an IPv4 address, after so many bytes.
var (
	nat64     = netip.MustParsePrefix("64:ff9b::/96")
	sixToFour = netip.MustParsePrefix("2002::/16")
)

// Is reports whether an address, without a zone and unmapped, is a public one.
func Is(a netip.Addr) bool {
	if a.Is6() {
		b := a.As16()
		switch {
		case nat64.Contains(a):
			return Is(netip.AddrFrom4([4]byte(b[12:])))
		case sixToFour.Contains(a):
			return Is(netip.AddrFrom4([4]byte(b[2:6])))
		}
	}
	return a.IsGlobalUnicast() && !a.IsPrivate() && !slices.ContainsFunc(reserved, func(p netip.Prefix) bool { return p.Contains(a) })
}
