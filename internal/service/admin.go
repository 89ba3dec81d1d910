package service

import (
	"errors"
	"net"
	"net/http"
	"strings"

	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/internal/network"
	"github.com/semelhq/semel/internal/peer"
	"github.com/semelhq/semel/internal/service/api"
	"github.com/semelhq/semel/internal/service/auth"
	"github.com/semelhq/semel/internal/service/config"
	"github.com/semelhq/semel/service/dashboard"
)

// adminHandler serves the admin listener: health, metrics, reload, the clock, the whole API,
// and the dashboard in front of them, which gives a request the token of its session. A page in a
// browser on the same machine can reach loopback addresses, so requests from other
// origins, or under names other than the listener's, are refused.
func (s *Server) adminHandler(version string) (http.Handler, error) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", s.live)
	mux.HandleFunc("GET /healthz", s.live) // where many tools look by default
	mux.HandleFunc("GET /readyz", s.ready)
	mux.HandleFunc("GET /metrics", s.serveMetrics)
	mux.HandleFunc("POST /v1/reload", s.serveReload)
	mux.HandleFunc("POST /v1/accept-clock", s.serveAcceptClock)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { s.adminAPI.Admin().ServeHTTP(w, r) })
	page, err := dashboard.New(dashboard.Options{API: mux, Identify: s.operator, SignIn: true, Version: version, Evidence: s.evidence != nil})
	if err != nil {
		return nil, err
	}
	return marked(peer.Admin, http.NewCrossOriginProtection().Handler(s.onlyKnownHosts(page, func() []string { return nil }))), nil
}

// marked marks all answers of a handler as Semel's, also the ones that refuse before the API does.
func marked(kind string, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		peer.Mark(w.Header(), kind)
		h.ServeHTTP(w, r)
	})
}

// isLoopback reports whether a host, with or without a port, can only be this machine.
func isLoopback(hostport string) bool {
	return network.Loopback(strings.ToLower(hostOf(hostport))) // browsers and curl send it as it was typed
}

func hostOf(hostport string) string {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		return strings.Trim(hostport, "[]")
	}
	return host
}

// operator is who sent a request to the admin listener. The same rule holds for all ways
// to start the service: who bears the admin token is an admin, others have the role that
// auth gives them. If the configuration names no operator, every program on this machine
// is an admin that sends no credential and wasn't passed on by a proxy; pages in a browser
// are refused before, see adminHandler.
func (s *Server) operator(r *http.Request) (api.Caller, error) {
	c, _, err := s.identified(r)
	return c, err
}

// identified is [Server.operator], and whether the caller may know of all tenants what isn't
// in records: the configuration names them without a tenant or for all, or there is one only.
func (s *Server) identified(r *http.Request) (c api.Caller, general bool, err error) {
	g := s.current()
	id, err := g.adminToken.Authenticate(r)
	if err != nil {
		id, err = g.auth.Authenticate(r)
	}
	if errors.Is(err, auth.ErrNoCredential) && g.cfg.OpenAdmin() {
		if semelhttp.Forwarded(r.Header) {
			return api.Caller{}, false, errForwardedOperator
		}
		return api.Caller{Role: api.Admin, AllTenants: true}, true, nil
	}
	c, err = admit(api.Caller{Tenant: id.Tenant, Principal: id.Principal, Role: id.Roles, AllTenants: id.AllTenants()}, err)
	return c, id.Named() || c.AllTenants || g.cfg.OneTenant(), err
}

var errForwardedOperator = errors.New("the request came through a proxy, and no operator is named: set admin.token_file, or give a caller in auth a role")

func adminToken(c *config.Admin) (*auth.Authenticator, error) {
	var settings auth.Settings
	if c.TokenFile != "" {
		token, err := c.Token()
		if err != nil {
			return nil, err
		}
		settings.Tokens = []auth.Token{{Name: "admin", SHA256: auth.HashToken(token), Principal: "admin", Roles: []string{"admin"}}}
	}
	return auth.New(settings)
}

// serveReload reads the configuration again and applies it, for all tenants.
func (s *Server) serveReload(w http.ResponseWriter, r *http.Request) {
	if !s.oversees(w, r, "reload") {
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
