package server

import (
	"cmp"
	"net/http"
	"net/netip"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/server/auth"
	"github.com/semelhq/semel/server/config"
	"github.com/semelhq/semel/server/limit"
	"github.com/semelhq/semel/transport/semelhttp"
)

func newBudget(l *config.Limits) (*limit.Budget, error) {
	return limit.NewBudget(limit.Bounds{Total: int64(l.TotalBytes), Tenant: int64(l.TenantBytes), Principal: int64(l.PrincipalBytes)})
}

func paceOf(l *config.Limits) limit.Pace {
	return limit.Pace{Rate: int64(l.Rate), Grace: time.Duration(l.RateGrace)}
}

// unverified is the tenant of callers whom nobody has verified. No other tenant can have
// this name.
const unverified = "\x00"

// callerOf is whose share of the budget a request uses. Somebody unverified can make up a
// credential for every request, so their address counts instead; for IPv6, the network of
// one subscriber.
func callerOf(r *http.Request) limit.Caller {
	if id, ok := auth.FromContext(r.Context()); ok {
		return limit.Caller{Tenant: id.Tenant, Principal: id.Principal}
	}
	c := limit.Caller{Tenant: unverified, Principal: r.RemoteAddr}
	if at, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		c.Principal = networkOf(at.Addr())
	}
	return c
}

// networkOf is an address; for IPv6, the network of one subscriber.
func networkOf(addr netip.Addr) string {
	addr, bits := addr.Unmap().WithZone(""), 32
	if addr.Is6() {
		bits = 64
	}
	network, err := addr.Prefix(bits)
	if err != nil {
		return addr.String()
	}
	return network.String()
}

func quotasOf(q *config.Quotas) semel.Quotas {
	return semel.Quotas{
		Window:           time.Duration(q.Window),
		PrincipalRecords: int64(q.PrincipalRecords), PrincipalBytes: int64(q.PrincipalBytes),
		TenantRecords: int64(q.TenantRecords), TenantBytes: int64(q.TenantBytes),
		Account: accountOf,
	}
}

// accountOf is whose quotas a record uses. Callers whom nobody has verified can use
// another credential for every call, which makes each a new principal. So only the quota
// of their common tenant bounds them.
func accountOf(rec *semel.Record) (tenant, principal string) {
	who := cmp.Or(rec.Principal, rec.BoundTo)
	if semelhttp.DerivedPrincipal(who) {
		return unverified, who
	}
	return rec.ID.Tenant, who
}
