package service

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/forrst"
	"github.com/semelhq/semel/door/judge"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/internal/service/api"
	"github.com/semelhq/semel/internal/service/auth"
	"github.com/semelhq/semel/internal/service/config"
	"github.com/semelhq/semel/safehttp"
)

// forrstDoor offers a service over Forrst. The guard of the generation records its outcomes
// and is closed with it. Nothing but a credential says who calls, so the rules of ownAPI apply.
func (s *Server) forrstDoor(g *generation, c *config.Forrst) (d doorway, err error) {
	transport := safehttp.Direct(nil)
	transport.MaxConnsPerHost = c.UpstreamConnections
	up, err := forrst.NewUpstream(forrst.UpstreamOptions{URL: c.Upstream, Transport: transport, EffectHeader: c.EffectHeader, PassKey: c.PassKey, Answers: judge.Answers(c.Answers), Prepare: prepare(g, c)})
	if err != nil {
		return d, err
	}
	g.upstreams = append(g.upstreams, up)
	opts, err := forrstOptions(c, up.Run)
	if err != nil {
		return d, err
	}
	opts.Runner, opts.Identify, opts.Attrs = g.guard.Runner(), g.verifiedCallers(&c.Callers), []slog.Attr{slog.String("path", c.Path)}
	service, err := forrst.New(s.engine, opts)
	if err != nil {
		return d, err
	}
	explain := func(r *http.Request, body []byte, found *api.Explained) error {
		if r.Method == http.MethodPost {
			x := service.Explain(body)
			found.Operation, found.Key, found.Details = x.Operation, x.Key, &x
		}
		return nil
	}
	return doorway{Handler: s.ownAPI(service), name: forrst.Name, upstream: c.Upstream, form: true, explain: explain, paths: []string{c.Path}}, nil
}

// verifiedCallers says who calls a door where the service itself is the server. As for the
// execution API, an unverified credential counts for nothing if callers can be verified. The
// configuration can name credentials that the upstream verifies, or have callers share.
func (g *generation) verifiedCallers(c *config.Callers) func(r *http.Request) (semelhttp.Caller, error) {
	callers := g.guard.Callers(semelhttp.Route{Credential: c.Credential, Anonymous: c.Anonymous})
	if !g.auth.Configured() || len(c.Credential) > 0 || c.Anonymous == semelhttp.AnonymousShare {
		return callers
	}
	return func(r *http.Request) (semelhttp.Caller, error) {
		who, err := callers(r)
		if err == nil && who.Principal == "" {
			err = &semelhttp.Refused{Challenge: auth.Challenge(auth.ErrNoCredential), Err: auth.ErrNoCredential}
		}
		return who, err
	}
}

func forrstOptions(c *config.Forrst, run forrst.Handler) (forrst.Options, error) {
	key, err := c.HashKey()
	if err != nil {
		return forrst.Options{}, err
	}
	opts := forrst.Options{
		Service: c.Service, Extensions: c.Extensions, MaxBody: int64(c.MaxBody), Timeout: time.Duration(c.Timeout), MaxTTL: time.Duration(c.MaxTTL),
		HashKey: key, PlainHash: c.ArgumentsHash == "plain", PublishedForm: c.PublishedForm, IgnoreReadKeys: c.ReadKeys == "ignore",
		Attributes: config.Pairs(c.Attributes),
	}
	for _, fn := range c.Functions {
		f := forrst.Function{Name: fn.Name, Key: fn.Key, Operation: semel.Operation{Name: fn.Operation}}
		for _, version := range fn.Versions {
			arguments, err := fn.ReadArguments(version)
			if err != nil {
				return forrst.Options{}, err
			}
			f.Versions = append(f.Versions, forrst.Version{Version: version, Run: run, Arguments: arguments})
		}
		opts.Functions = append(opts.Functions, f)
	}
	return opts, nil
}

// prepare tells the upstream who calls, and removes the service's own headers and tokens.
func prepare(g *generation, c *config.Forrst) func(context.Context, *forrst.Request, http.Header) {
	return func(ctx context.Context, r *forrst.Request, header http.Header) {
		for _, name := range g.auth.IdentityHeaders() {
			header.Del(name)
		}
		if !c.ForwardCredential && ownCredential(ctx) {
			header.Del("Authorization")
		}
		for name, value := range map[string]string{c.TenantHeader: r.Caller.Tenant, c.PrincipalHeader: r.Caller.Principal} {
			if header.Del(name); name != "" && value != "" {
				header.Set(name, value)
			}
		}
	}
}
