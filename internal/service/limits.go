package service

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/internal/network"
	"github.com/semelhq/semel/internal/service/auth"
	"github.com/semelhq/semel/internal/service/config"
	"github.com/semelhq/semel/internal/service/limit"
)

func newBudget(l *config.Limits) *limit.Budget {
	return limit.NewBudget(limit.Bounds{Total: int64(l.TotalBytes), Tenant: int64(l.TenantBytes), Principal: int64(l.PrincipalBytes)})
}

func paceOf(l *config.Limits) limit.Pace {
	return limit.Pace{Rate: int64(l.Rate), Grace: time.Duration(l.RateGrace)}
}

func (s *Server) limitOptions(cfg *config.Config) limit.Options {
	return limit.Options{
		TypeBase: problemsPath, Caller: callerOf, Pace: paceOf(&cfg.Limits), BodyTimeout: time.Duration(cfg.Limits.ReadTimeout),
		Refused: func(r *http.Request, code semel.Code) {
			tap := s.engine.Internal()
			tap.Answered(tap.Arrived(r.Context(), s.current().doorOf(r), r.Header), semel.Delivered{Code: code})
		},
	}
}

// unverified is the tenant of callers whom nobody has verified. No other has this name.
const unverified = "\x00"

// callerOf names the caller who pays for a request from their budget. Somebody unverified can
// make up a credential for every request, so their address counts instead; for IPv6, the
// network of one subscriber.
func callerOf(r *http.Request) limit.Caller {
	if id, ok := auth.FromContext(r.Context()); ok {
		return limit.Caller{Tenant: id.Tenant, Principal: id.Principal}
	}
	c := limit.Caller{Tenant: unverified, Principal: r.RemoteAddr}
	if from := network.OfClient(r.RemoteAddr); from.IsValid() {
		c.Principal = from.String()
	}
	return c
}

func quotasOf(q *config.Quotas) semel.Quotas {
	return semel.Quotas{
		Window:           time.Duration(q.Window),
		PrincipalRecords: int64(q.PrincipalRecords), PrincipalBytes: int64(q.PrincipalBytes),
		TenantRecords: int64(q.TenantRecords), TenantBytes: int64(q.TenantBytes),
		UnverifiedHolds: int64(q.UnverifiedHolds),
		Account:         accountOf,
	}
}

type networkKey struct{}

// withNetwork notes where a request of somebody unverified came from, for their quotas.
func withNetwork(r *http.Request) *http.Request {
	if c := callerOf(r); c.Tenant == unverified {
		return r.WithContext(context.WithValue(r.Context(), networkKey{}, c.Principal))
	}
	return r
}

// accountOf names the tenant and principal that pay for a record from their quotas. Callers
// whom nobody has verified can use another credential for every call, which makes each a new
// principal. So they count by the network that they call from, as their bytes in flight do, and
// the quota of their common tenant bounds all of them.
func accountOf(ctx context.Context, rec *semel.Record) (tenant, principal string) {
	who := cmp.Or(rec.Principal, rec.BoundTo)
	if semelhttp.DerivedPrincipal(who) {
		network, _ := ctx.Value(networkKey{}).(string)
		return unverified, network
	}
	return rec.ID.Tenant, who
}
