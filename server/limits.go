package server

import (
	"net/http"
	"net/netip"
	"time"

	"github.com/semelhq/semel/server/auth"
	"github.com/semelhq/semel/server/config"
	"github.com/semelhq/semel/server/limit"
)

func newBudget(l *config.Limits) (*limit.Budget, error) {
	return limit.NewBudget(limit.Bounds{Total: int64(l.TotalBytes), Tenant: int64(l.TenantBytes), Principal: int64(l.PrincipalBytes)})
}

func paceOf(l *config.Limits) limit.Pace {
	return limit.Pace{Rate: int64(l.Rate), Grace: time.Duration(l.RateGrace)}
}

// unverified is the tenant of callers whom nobody has verified, which is the name of
// no other.
const unverified = "\x00"

// callerOf is whose share of the budget a request uses. A credential that nobody has
// verified can be made up for every request, so the address counts instead; of IPv6,
// the network that one subscriber has.
func callerOf(r *http.Request) limit.Caller {
	if id, ok := auth.FromContext(r.Context()); ok {
		return limit.Caller{Tenant: id.Tenant, Principal: id.Principal}
	}
	c := limit.Caller{Tenant: unverified, Principal: r.RemoteAddr}
	if at, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		addr, bits := at.Addr().Unmap().WithZone(""), 32
		if addr.Is6() {
			bits = 64
		}
		if network, err := addr.Prefix(bits); err == nil {
			c.Principal = network.String()
		}
	}
	return c
}
