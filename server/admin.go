package server

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/server/api"
	"github.com/semelhq/semel/server/auth"
)

// adminHandler serves the admin listener: health, reload, and the whole API. A page in a
// browser on the same machine can reach loopback addresses, so requests from other
// origins, or under names other than the listener's, are refused.
func (s *Server) adminHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", s.live)
	mux.HandleFunc("GET /readyz", s.ready)
	mux.HandleFunc("POST /v1/reload", s.serveReload)
	mux.Handle("/", s.adminAPI.Admin())
	return http.NewCrossOriginProtection().Handler(s.onlyKnownHosts(mux, func() []string { return nil }))
}

// isLoopback reports whether a host, with or without a port, names this machine in a way
// that no DNS server can fake.
func isLoopback(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.Trim(hostport, "[]")
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.IsLoopback()
}

// operator is who sent a request to the admin listener. If no callers are configured, the
// listener is on loopback, and everybody on this machine is an admin.
func (s *Server) operator(r *http.Request) (api.Caller, error) {
	a := s.current().auth
	id, err := a.Authenticate(r)
	if errors.Is(err, auth.ErrNoCredential) && !a.Configured() {
		return api.Caller{Role: api.Admin, AllTenants: true}, nil
	}
	return s.admit(api.Caller{Tenant: id.Tenant, Principal: id.Principal, Role: roles[id.Roles], AllTenants: id.AllTenants()}, err)
}

var roles = map[auth.Roles]api.Role{auth.Viewer: api.Viewer, auth.Operator: api.Operator, auth.Admin: api.Admin}

// serveReload reads the configuration again and applies it.
func (s *Server) serveReload(w http.ResponseWriter, r *http.Request) {
	id, err := s.operator(r)
	if err != nil {
		w.Header().Set("WWW-Authenticate", auth.Challenge(err))
		plain(w, http.StatusUnauthorized, "Send a credential.\n")
		return
	}
	if id.Role < api.Admin {
		plain(w, http.StatusForbidden, "Only an admin may reload.\n")
		return
	}
	switch changed, err := s.Reload(); {
	case err != nil:
		plain(w, http.StatusUnprocessableEntity, err.Error()+"\n")
	case changed:
		plain(w, http.StatusOK, "reloaded\n")
	default:
		plain(w, http.StatusOK, "unchanged\n")
	}
}

func isNotFound(err error) bool { return errors.Is(err, semel.ErrNotFound) }
