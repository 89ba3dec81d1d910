package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/door/semelproxy"
	"github.com/semelhq/semel/internal/reconcile"
	"github.com/semelhq/semel/internal/service/auth"
	"github.com/semelhq/semel/internal/service/config"
	"github.com/semelhq/semel/internal/service/limit"
)

// Paths on the data listener that no route can have.
const (
	ownPrefix    = "/semel/"
	statusPath   = ownPrefix + "status/"
	problemsPath = ownPrefix + "problems/"
)

// generation has everything that depends on one configuration. A reload makes another
// one; requests finish under the one they began with.
type generation struct {
	cfg  *config.Config
	auth *auth.Authenticator
	// adminToken knows who bears the token of the admin listener.
	adminToken *auth.Authenticator
	guard      *semelhttp.Guard
	upstreams  []upstreamCalls
	routes     routing
	doors      []doorway
	mandates   *mandates // nil without commerce

	inFlight sync.WaitGroup
}

// upstreamCalls are those of a route or a door. Interrupt stops the ones that run, and Close frees
// their connections.
type upstreamCalls interface {
	Interrupt()
	Close()
}

// build makes a generation, and registers its operations. A bad configuration leaves the
// engine's operations as they were; commit removes the ones that only the generation before
// had.
func (s *Server) build(cfg *config.Config) (g *generation, commit func(), err error) {
	commit, err = s.engine.Internal().Redeclare(func() (err error) {
		g, err = s.declare(cfg)
		return err
	})
	return g, commit, err
}

func (s *Server) declare(cfg *config.Config) (*generation, error) {
	ops, err := operations(cfg)
	if err != nil {
		return nil, err
	}
	g := &generation{cfg: cfg, routes: newRouting()}
	if g.auth, err = auth.New(cfg.Auth); err != nil {
		return nil, at("auth", err)
	}
	if g.adminToken, err = adminToken(&cfg.Admin); err != nil {
		return nil, at("admin.token_file", err)
	}
	if s.gen != nil {
		g.auth.Inherit(s.gen.auth)
	}
	if err := s.engine.Register(ops...); err != nil {
		return nil, err
	}
	g.guard, err = semelhttp.New(s.engine, &semelhttp.Options{
		Identity: g.auth.HTTPIdentity(), StatusPath: statusPath, TypeBase: problemsPath,
		Advice: "If you run this service, name its callers in auth (semel proxy: --jwt-issuer or --trusted-header), or set anonymous.",
	})
	if err != nil {
		return nil, err
	}
	for _, w := range cfg.Warnings() {
		s.log.Warn(w)
	}
	if err := s.openDoors(g); err != nil {
		return nil, err
	}
	for i, route := range cfg.Routes {
		if err := s.addRoute(g, &route); err != nil {
			return nil, at(fmt.Sprintf("routes[%d]", i), err)
		}
	}
	return g, nil
}

func (s *Server) addRoute(g *generation, route *config.Route) error {
	upstream, err := url.Parse(route.Upstream)
	if err != nil {
		return err
	}
	opts := g.forwarding(&route.Forwarding)
	opts.Upstream, opts.Route, opts.Mode = upstream, g.cfg.Guarded(*route), semelproxy.Mode(route.Mode)
	opts.PreserveHost, opts.Transport.Fresh = semelproxy.HostRule(route.PreserveHost), route.FreshConnections
	opts.PassKey, opts.Attrs = route.PassKey, []slog.Attr{slog.String("route", route.Match)}
	if route.RequiresMandate != "" {
		g.mandates.require(g, &opts, route.RequiresMandate)
	}
	if upstream.Scheme == "h2c" {
		upstream.Scheme, opts.Transport.Protocol = "http", semelproxy.ProtocolH2C
	}
	for _, kind := range route.Unguarded {
		opts.Unguarded = append(opts.Unguarded, semelproxy.Kind(kind))
	}
	proxy, err := semelproxy.New(g.guard, opts)
	if err != nil {
		return err
	}
	g.upstreams = append(g.upstreams, proxy)
	g.routes.add(route.Match, proxy)
	return nil
}

func (g *generation) forwarding(c *config.Forwarding) semelproxy.Options {
	opts := semelproxy.Options{
		Identity: g.auth.HTTPIdentity(), StripHeaders: g.auth.IdentityHeaders(), TrustedProxies: g.cfg.Listen.Trusted(),
		EffectHeader: c.EffectHeader, TenantHeader: c.TenantHeader, PrincipalHeader: c.PrincipalHeader,
		Transport: semelproxy.TransportOptions{MaxConns: c.UpstreamConnections},
	}
	if !c.ForwardCredential {
		opts.OwnCredential = ownCredential
	}
	return opts
}

// ownCredential reports whether the caller was identified by a token of this service, with
// which an upstream could act as the caller here. A JWT is for other services too, and they
// verify it again.
func ownCredential(ctx context.Context) bool {
	id, ok := auth.FromContext(ctx)
	return ok && id.Method == auth.MethodToken
}

// operations are the declared policies, with the functions that the server adds.
func operations(cfg *config.Config) ([]semel.Operation, error) {
	var ops []semel.Operation
	for i := range cfg.Operations {
		o := &cfg.Operations[i]
		op, err := o.Policy()
		if err != nil {
			return nil, err
		}
		if o.Share == semel.ShareTenant {
			op.Authorize = onlyVerified
		}
		if o.ReconcileURL != "" {
			u, err := url.Parse(o.ReconcileURL)
			if err != nil {
				return nil, fmt.Errorf("operations[%d].reconcile_url: %w", i, err)
			}
			op.Reconcile = semelproxy.ReconcileHTTP(u, nil)
		}
		if o.Reconcile.On() {
			asked, err := reconcile.New(o.Reconcile)
			if err != nil {
				return nil, fmt.Errorf("operations[%d].reconcile: %w", i, err)
			}
			op.Reconcile = semelproxy.ReconcileBy(asked.Ask, asked.Name())
		}
		ops = append(ops, op)
	}
	return ops, nil
}

// onlyVerified lets every verified caller of the tenant see an answer that the tenant shares. A
// caller with nothing but an unverified credential belongs to no tenant.
func onlyVerified(_ context.Context, call semel.Call, _ semel.Record) error {
	if semelhttp.DerivedPrincipal(call.Principal) {
		return errors.New("the caller has no verified identity")
	}
	return nil
}

// dataHandler limits serveData to the budget of bytes in flight. It authenticates the
// caller once, for everything behind it.
func (s *Server) dataHandler(cfg *config.Config, budget *limit.Budget) http.Handler {
	quotas := cfg.Quotas != config.Quotas{Window: cfg.Quotas.Window}
	limited := budget.Handler(http.HandlerFunc(s.serveData), s.limitOptions(cfg))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a := s.current().auth; a.Configured() {
			// A bad credential is refused by the handlers that need the caller.
			if id, err := a.Authenticate(r); err == nil {
				r = r.WithContext(auth.NewContext(r.Context(), id))
			}
		}
		if c := callerOf(r); quotas && c.Tenant == unverified { // their quotas go by where they come from
			r = r.WithContext(context.WithValue(r.Context(), networkKey{}, c.Principal))
		}
		limited.ServeHTTP(w, r)
	})
}

// serveData routes requests of the data listener: first to the paths that are always
// Semel's own, then to the routes, then to a door at the root, or else to the execution API,
// which a route may hide.
func (s *Server) serveData(w http.ResponseWriter, r *http.Request) {
	g := s.enter()
	defer g.inFlight.Done()
	door := g.door(r.URL.Path)
	switch {
	case strings.HasPrefix(r.URL.Path, statusPath):
		g.guard.Status().ServeHTTP(w, r)
	case strings.HasPrefix(r.URL.Path, problemsPath):
		r.URL.Path = strings.TrimPrefix(r.URL.Path, strings.TrimSuffix(ownPrefix, "/"))
		s.dataAPI.Data().ServeHTTP(w, r)
	case door != nil:
		door.ServeHTTP(w, r)
	default:
		if route := g.routes.find(r); route != nil {
			g.serve(w, r, route)
		} else if root := g.root(); root != nil {
			root.ServeHTTP(w, r)
		} else {
			s.executions.ServeHTTP(w, r)
		}
	}
}

func (s *Server) answersHTTP(rec *semel.Record) bool {
	g := s.current()
	own := slices.ContainsFunc(g.doors, func(d doorway) bool { return d.form && d.name == rec.Door })
	return semelhttp.Marked(rec) || !own && g.guard.Serves(rec.ID.Operation)
}

// close waits until the outcomes of everything that ran are recorded.
func (g *generation) close(ctx context.Context) error {
	_, idle := inBackground(func(context.Context) error { g.inFlight.Wait(); return nil })
	select {
	case <-idle:
	case <-ctx.Done():
	}
	err := g.guard.Close(ctx)
	for _, calls := range g.upstreams {
		calls.Close()
	}
	return err
}
