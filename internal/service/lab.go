package service

import (
	"context"
	"net/http"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/service/auth"
	"github.com/semelhq/semel/service/dashboard"
)

// labPrincipal is who sends what comes from the Lab. Its keys are its own, so an experiment
// can't meet a caller's call, unless the operation shares its keys within the tenant.
const labPrincipal = "semel.lab"

// lab is what the dashboard's Lab sends its requests to: the doors of the data listener,
// without a connection, so that nothing can go to another host. Nil if it is off.
func (s *Server) lab() *dashboard.Lab {
	cfg := s.current().cfg
	if !cfg.Dashboard.Lab {
		return nil
	}
	doors := s.dataHandler(cfg)
	as := func(r *http.Request, tenant string) *http.Request {
		ctx := context.WithValue(r.Context(), http.LocalAddrContextKey, s.DataAddr())
		return r.WithContext(auth.NewContext(ctx, auth.Identity{Tenant: tenant, Principal: labPrincipal, Method: auth.MethodLab}))
	}
	return &dashboard.Lab{
		Send: func(w http.ResponseWriter, r *http.Request, tenant string) { doors.ServeHTTP(w, as(r, tenant)) },
		Call: func(r *http.Request, body []byte, tenant string) semel.ID { return s.explain(as(r, tenant), body).ID },
	}
}
