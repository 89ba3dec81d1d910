package cli

import (
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/internal/service/auth"
	"github.com/semelhq/semel/internal/service/config"
	"github.com/semelhq/semel/internal/strictyaml"
)

// upstreamFlags are the settings that every command with one upstream has: of its operation, its
// listeners and its callers. Most flags are settings of the same name.
type upstreamFlags struct {
	listen, admin, adminToken, store string

	op      config.Operation
	answers []string
	jwt     config.JWT
	jwks    string // a file or a URL
	header  config.TrustedHeader
	trusted []string

	readTimeout, shutdownDelay time.Duration
}

// sizeFlag is a flag with a size, such as 10MiB.
type sizeFlag struct{ *config.Size }

func (f sizeFlag) Set(text string) (err error) { *f.Size, err = strictyaml.ParseSize(text); return err }
func (sizeFlag) Type() string                  { return "size" }

// spanFlag is a flag with a time span in days too, such as 90d.
type spanFlag struct{ *config.Duration }

func (f spanFlag) Set(text string) (err error) {
	*f.Duration, err = config.ParseDuration(text)
	return err
}
func (spanFlag) Type() string { return "duration" }

// register adds the flags, with those of the door's callers, of its largest request, and of the
// meanings of its upstream's answers.
func (f *upstreamFlags) register(flags *pflag.FlagSet, callers *config.Callers, maxBody *config.Size) {
	op := &f.op
	flags.StringVar(&f.listen, "listen", "127.0.0.1:8480", "`address` for requests")
	flags.StringVar(&f.admin, "admin", "127.0.0.1:0", "`address` for operators")
	flags.StringVar(&f.adminToken, "admin-token-file", "", "`file` with the token of operators")
	flags.StringVar(&f.store, "store", "pebble:./semel-data", "pebble, postgres, redis, memory")
	flags.StringArrayVar(&f.answers, "answers", nil, "what an answer means: `LIST=STATUS`, such as not_executed=503")
	flags.StringVar((*string)(&op.OnAbandoned), "on-abandoned", "hold", "unknown outcomes: hold or retry")
	flags.StringVar(&op.ReconcileURL, "reconcile", "", "`URL` to ask what happened to a held call")
	flags.DurationVar((*time.Duration)(&op.ReconcileEvery), "reconcile-every", 5*time.Second, "how often to ask about one call")
	flags.DurationVar(&f.readTimeout, "read-timeout", time.Minute, "how long a body may stall")
	flags.DurationVar(&f.shutdownDelay, "shutdown-delay", 0, "how long to accept requests, unready, before stopping")
	flags.DurationVar((*time.Duration)(&op.Lease), "lease", 30*time.Second, "how long a dead process counts as running")
	op.MaxResult = 1 << 20
	flags.Var(sizeFlag{maxBody}, "max-body", "largest `size` of a request's body")
	flags.Var(sizeFlag{&op.MaxResult}, "max-result", "largest `size` of a recorded answer")
	flags.StringSliceVar(&f.trusted, "trusted-proxy", nil, "`address` or network of a proxy in front")

	flags.StringVar(&f.jwt.Issuer, "jwt-issuer", "", "`iss` of JSON Web Tokens that verify callers")
	flags.StringVar(&f.jwks, "jwks", "", "`file or URL` with the issuer's public keys")
	flags.StringVar(&f.jwt.Audience, "jwt-audience", "", "`aud` that the tokens must have")
	flags.StringVar(&f.header.Principal, "trusted-header", "", "`header` in which a proxy in front names the verified caller")
	flags.StringSliceVar(&f.header.From, "trusted-from", []string{"127.0.0.0/8", "::1/128"}, "`networks` of that proxy")
	flags.StringSliceVar(&callers.Credential, "credential", nil, "`headers`, cookie:NAME, authorization:PART to tell callers apart")
	flags.StringVar((*string)(&callers.Anonymous), "anonymous", "", "callers without a credential: loopback, share or refuse")
}

// proxyFlags are the settings of the one operation and the one route that 'semel proxy' has.
type proxyFlags struct {
	upstreamFlags
	route config.Route
}

func (f *proxyFlags) register(flags *pflag.FlagSet) {
	op, rt := &f.op, &f.route
	rt.MaxBody = 10 << 20
	f.upstreamFlags.register(flags, &rt.Callers, &rt.MaxBody)
	flags.StringVar(&rt.Profile, "profile", "ietf", "ietf, stripe, acp, ucp, adyen or x402")
	flags.StringVar((*string)(&rt.Key), "key", "", "optional or required (default optional, but for acp)")
	flags.StringVar(&rt.KeyHeader, "key-header", semelhttp.DefaultKeyHeader, "`header` with the key")
	flags.StringSliceVar(&rt.Methods, "methods", nil, "`methods` to guard (default all but safe ones)")
	flags.StringSliceVar(&rt.KeepHeaders, "keep-headers", nil, "more `headers` of answers that duplicates get")
	flags.StringSliceVar(&rt.Origins, "origin", nil, "`origin` of pages that may read refusals and replays")
	flags.StringVar((*string)(&op.InFlight), "in-flight", "refuse", "concurrent duplicates: refuse or wait")
	flags.StringVar(&rt.Mode, "mode", "enforce", "enforce, shadow or off")
	flags.DurationVar((*time.Duration)(&rt.Timeout), "timeout", time.Minute, "how long the upstream may take")
	flags.StringVar(&rt.PreserveHost, "preserve-host", "auto", "send the client's Host: auto, always or never")
	flags.BoolVar(&rt.FreshConnections, "fresh-connections", false, "a new connection for each guarded request")
	flags.StringSliceVar(&rt.ScopeHeaders, "scope-header", nil, "`headers`, or :path, that are part of a call's identity")
}

// settings returns the operation and the route that the flags describe.
func (f *proxyFlags) settings(upstream string) (config.Operation, config.Route, error) {
	op, rt := f.op, f.route
	op.Name = "proxy"
	rt.Match, rt.Upstream, rt.Operation = "/", upstream, op.Name
	if rt.Key == "" && rt.Profile != semelhttp.ACP().Name {
		rt.Key = semelhttp.KeyOptional
	}
	return op, rt, f.meanings(&rt.Answers)
}

// meanings adds what --answers says.
func (f *upstreamFlags) meanings(a *config.Answers) error {
	lists := map[string]*[]string{"not_executed": &a.NotExecuted, "unknown": &a.Unknown, "final": &a.Final}
	for _, text := range f.answers {
		name, entry, ok := strings.Cut(text, "=")
		list := lists[name]
		if list == nil || !ok {
			return usage("--answers %q isn't not_executed=STATUS, unknown=STATUS or final=STATUS, such as not_executed=503", text)
		}
		*list = append(*list, entry)
	}
	return nil
}

// apply puts the settings that aren't of the operation or the route into a configuration.
func (f *upstreamFlags) apply(cfg *config.Config) error {
	cfg.Listen.TrustedProxies = f.trusted
	cfg.Limits.ReadTimeout, cfg.Limits.ShutdownDelay = config.Duration(f.readTimeout), config.Duration(f.shutdownDelay)
	if f.header.Principal != "" {
		cfg.Auth.TrustedHeader = f.header
	}
	jwt := f.jwt
	switch given := []bool{jwt.Issuer != "", jwt.Audience != "", f.jwks != ""}; {
	case !slices.Contains(given, true):
		return nil
	case slices.Contains(given, false):
		return usage("--jwt-issuer, --jwks and --jwt-audience belong together")
	}
	jwt.Algorithms, jwt.PrincipalClaim, jwt.Leeway = auth.Algorithms, "sub", config.Duration(30*time.Second)
	if strings.Contains(f.jwks, "://") {
		jwt.JWKSURL = f.jwks
	} else {
		jwt.KeysFile = f.jwks
	}
	cfg.Auth.JWT = append(cfg.Auth.JWT, jwt)
	return nil
}
