package safehttp

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"
)

// ErrPrivate is wrapped by the error of every connection that a [Guard] refuses.
var ErrPrivate = errors.New("the address is not a public one")

// Guard refuses connections to addresses that aren't public, so that somebody who names
// an address can't reach into the network of whoever connects to it (server-side request forgery). It
// checks the address of the connection, after names were resolved, so a name that
// changes (DNS rebinding) doesn't get past it. The zero value refuses all
// private, loopback and reserved addresses. Concurrent use is fine.
type Guard struct {
	// Private allows every address.
	Private bool
	// Allow allows some that aren't public.
	Allow []netip.Prefix
}

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

// Control refuses a connection to an address that isn't allowed; it is for [Direct].
func (g *Guard) Control(_ context.Context, _, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrPrivate, err)
	}
	if !g.Allows(at.Addr()) {
		return fmt.Errorf("%w: %s", ErrPrivate, at.Addr())
	}
	return nil
}

// Allows reports whether connections to the address are allowed.
func (g *Guard) Allows(a netip.Addr) bool {
	a = a.WithZone("").Unmap()
	return g.Private || public(a) || slices.ContainsFunc(g.Allow, func(p netip.Prefix) bool { return p.Contains(a) })
}

func public(a netip.Addr) bool {
	if a.Is6() {
		b := a.As16()
		switch {
		case nat64.Contains(a):
			return public(netip.AddrFrom4([4]byte(b[12:])))
		case sixToFour.Contains(a):
			return public(netip.AddrFrom4([4]byte(b[2:6])))
		}
	}
	return a.IsGlobalUnicast() && !a.IsPrivate() && !slices.ContainsFunc(reserved, func(p netip.Prefix) bool { return p.Contains(a) })
}
