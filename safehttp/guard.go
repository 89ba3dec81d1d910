package safehttp

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"

	"github.com/semelhq/semel/safehttp/internal/public"
)

// ErrPrivate is wrapped by the error of every connection that a [Guard] refuses.
var ErrPrivate = errors.New("the address is not a public one")

// Guard refuses connections to addresses that aren't public, so that somebody who names
// an address can't reach into the network of whoever connects to it (server-side request
// forgery). It checks the address of the connection, after names were resolved, so a name that
// changes (DNS rebinding) doesn't get past it. The zero value refuses all private, loopback and
// reserved addresses. Concurrent use is fine.
type Guard struct {
	// Private allows every address.
	Private bool
	// Allow allows some that aren't public.
	Allow []netip.Prefix
}

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
	return g.Private || public.Is(a) || slices.ContainsFunc(g.Allow, func(p netip.Prefix) bool { return p.Contains(a) })
}
