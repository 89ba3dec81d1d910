package service

import (
	"errors"
	"net"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/door/semelproxy"
	"github.com/semelhq/semel/internal/network"
	"github.com/semelhq/semel/internal/peer"
	"github.com/semelhq/semel/internal/service/api"
	"github.com/semelhq/semel/internal/service/auth"
	"github.com/semelhq/semel/internal/service/config"
	"github.com/semelhq/semel/service/dashboard"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

// ownAPI guards what the service itself answers at /v1 of the data listener: the
// execution API and commands. A page in a browser can reach both, on loopback addresses
// and inside a network, so the rules of the admin listener apply. They don't apply to
// routes: the upstream decides what browsers may do there.
func (s *Server) ownAPI(next http.Handler) http.Handler {
	origins := http.NewCrossOriginProtection()
	origins.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.refuse(w, r, semel.CodeForbidden, "Pages of other origins may not use this API.")
	}))
	return s.onlyKnownHosts(origins.Handler(next), func() []string { return s.current().cfg.Listen.Hosts })
}

func (s *Server) serveExecutions(w http.ResponseWriter, r *http.Request) {
	if s.current().cfg.API == config.APIOff {
		s.refuse(w, r, semel.CodeNotFound, "There is no route for this request, and the execution API is off.")
		return
	}
	s.dataAPI.Data().ServeHTTP(w, r)
}

func (s *Server) refuse(w http.ResponseWriter, r *http.Request, code semel.Code, detail string) {
	s.current().guard.Refuse(w, r, semelhttp.IETF(), semelhttp.RefusalOf(code, detail))
}

// caller is who sent a request to the execution API. Behind a route, an upstream may
// authenticate callers; behind the API nobody does. So an unverified credential counts
// for nothing if callers could be verified.
func (s *Server) caller(r *http.Request) (api.Caller, error) {
	g := s.current()
	if g.cfg.API != config.APIOpen {
		id, err := g.auth.Known(r)
		if err == nil && id.Method == auth.MethodNone {
			err = auth.ErrNoCredential
		}
		return admit(api.Caller{Tenant: id.Tenant, Principal: id.Principal}, err)
	}
	if semelhttp.Forwarded(r.Header) {
		return api.Caller{}, errors.New("the request came through a proxy, and the execution API is open to programs on this machine only: add callers to auth")
	}
	who, err := g.guard.Caller(r)
	return admit(api.Caller{Tenant: who.Tenant, Principal: who.Principal, Credential: who.Credential, Unproved: who.Unproved}, err)
}

// admit refuses a caller who can't be identified now.
func admit(c api.Caller, err error) (api.Caller, error) {
	if errors.Is(err, auth.ErrUnavailable) {
		err = &semel.Error{Code: semel.CodeStoreUnavailable, Message: err.Error()}
	}
	return c, err
}

// onlyKnownHosts refuses requests to a loopback listener under a host that is neither a
// loopback name nor configured. Otherwise a page could reach the listener by pointing its own
// name to loopback.
func (s *Server) onlyKnownHosts(next http.Handler, configured func() []string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		known := func(name string) bool { return strings.EqualFold(name, hostOf(r.Host)) }
		local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
		if local == nil || !isLoopback(local.String()) || isLoopback(r.Host) || slices.ContainsFunc(configured(), known) {
			next.ServeHTTP(w, r)
			return
		}
		s.refuse(w, r, door.CodeUnknownHost, "This listener answers only to loopback names, and for the execution API to the names in listen.hosts.")
	})
}

// routing finds the route of a request. Patterns and their precedence work as in
// [http.ServeMux], but without its redirects: many clients follow none, and others may send the
// request again without its key.
type routing struct {
	mux     *http.ServeMux
	proxies map[string]*semelproxy.Proxy // by pattern
}

func newRouting() routing {
	return routing{mux: http.NewServeMux(), proxies: map[string]*semelproxy.Proxy{}}
}

// add declares a route. Like the mux, it panics if the pattern is invalid, which the configuration
// has refused.
func (t *routing) add(pattern string, p *semelproxy.Proxy) {
	t.mux.Handle(pattern, p)
	t.proxies[pattern] = p
}

// find is the route for a request, or nil. It cleans the path first, of // and /../ for instance.
func (t *routing) find(r *http.Request) *semelproxy.Proxy {
	_, pattern := t.mux.Handler(r)
	return t.proxies[pattern]
}

// evades reports whether the request isn't guarded now, but would be by another route if
// its path were spelled as an upstream may read it: with /pay;x, /pay%2f or /pay/ one key
// could run again at the upstream of /pay.
func (t *routing) evades(r *http.Request, route *semelproxy.Proxy) bool {
	folded := fold(r.URL.Path)
	if folded == r.URL.Path || route.Guards(r) {
		return false
	}
	other := *r
	other.URL = &url.URL{Host: r.URL.Host, Path: folded}
	found := t.find(&other)
	return found != nil && found != route && found.Guards(r)
}

// fold is a path without parameters, cleaned by [path.Clean]. A backslash counts as a
// slash, as some servers read it.
func fold(p string) string {
	parts := strings.Split(strings.ReplaceAll(p, `\`, "/"), "/")
	for i := range parts {
		parts[i], _, _ = strings.Cut(parts[i], ";")
	}
	return path.Clean("/" + strings.Join(parts, "/"))
}

func (g *generation) serve(w http.ResponseWriter, r *http.Request, route *semelproxy.Proxy) {
	var why string
	switch {
	case g.passesDoor(r.URL.Path):
		why = "Spelled another way, the path of this request belongs to a door of this service, such as a webhook. Nothing was passed on. Send it to the path as it is configured."
	case g.routes.evades(r, route):
		why = "Spelled another way, the path of this request belongs to a route that guards it. Nothing was executed. Send it without a closing slash, parameters after a semicolon, a backslash, or an escaped slash."
	default:
		route.ServeHTTP(w, r)
		return
	}
	g.guard.Refuse(w, r, semelhttp.Profile{}, semelhttp.RefusalOf(door.CodeAmbiguousTarget, why))
}

// adminHandler serves the admin listener: health, metrics, reload, the clock, the whole API,
// and the dashboard in front of them, which gives a request the token of its session. A page in a
// browser on the same machine can reach loopback addresses, so requests from other
// origins, or under names other than the listener's, are refused.
func (s *Server) adminHandler(opts *Options) (http.Handler, error) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", s.live)
	mux.HandleFunc("GET /healthz", s.live) // where many tools look by default
	mux.HandleFunc("GET /readyz", s.ready)
	mux.HandleFunc("GET /metrics", s.serveMetrics)
	mux.HandleFunc("POST /v1/reload", s.serveReload)
	mux.HandleFunc("POST /v1/accept-clock", s.serveAcceptClock)
	if clock, ok := store.As[*memstore.Store](s.store); ok && opts.TestClock {
		mux.HandleFunc("POST /test/clock", func(w http.ResponseWriter, r *http.Request) { s.serveTestClock(w, r, clock) })
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { s.adminAPI.Admin().ServeHTTP(w, r) })
	page, err := dashboard.New(dashboard.Options{API: mux, Identify: s.operator, SignIn: true, Version: opts.Version, Node: s.engine.Internal().Node(), Evidence: s.evidence != nil})
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
			return api.Caller{}, false, errors.New("the request came through a proxy, and no operator is named: set admin.token_file, or give a caller in auth a role")
		}
		return api.Caller{Role: api.Admin, AllTenants: true}, true, nil
	}
	c, err = admit(api.Caller{Tenant: id.Tenant, Principal: id.Principal, Role: id.Roles, AllTenants: id.AllTenants()}, err)
	return c, id.Named() || c.AllTenants || g.cfg.OneTenant(), err
}

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
