package cli

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel/internal/service"
	"github.com/semelhq/semel/internal/service/config"
)

// byFlags names the flag that each wrong setting came from: so the command line is wrong.
func byFlags(cmd *cobra.Command, err error) error {
	errs, ok := errors.AsType[config.Errors](err)
	if !ok {
		return err
	}
	for i := range errs {
		_, path, _ := strings.Cut(errs[i].Path, ".") // the section's name means something else as a flag
		for setting := range strings.FieldsFuncSeq(path, func(r rune) bool { return r == '.' || r == '[' }) {
			for _, end := range []string{"", "-fields", "-url", "s"} {
				if name := strings.TrimSuffix(strings.ReplaceAll(setting, "_", "-"), end); cmd.Flags().Lookup(name) != nil {
					errs[i].Path = "--" + name
				}
			}
		}
	}
	return usage("%s", errs)
}

const proxyLong = `Guard one upstream: all requests go there, and those with an Idempotency-Key reach it
once, whatever their method, except GET, HEAD, OPTIONS and TRACE. Requests without a key
pass unguarded, unless --key is required, as it is with --profile acp. What can't be
replayed, such as a stream, passes through, and its duplicates get 410. An upgrade to
another protocol with a key is refused.

If the upstream got a request and never answered, Semel can't know whether the work
was done. It holds the call, and nobody runs it again, unless you say with
--on-abandoned retry that repeating is harmless. --reconcile names a URL to ask.
--answers says what an answer means, if you know everything in front of the upstream:
not_executed=503 runs the next delivery, unknown=500 holds the call, and final=419
gives every duplicate the same. 'final=302 header:Location=/x*' looks at a header, and
'not_executed=200 json:/error/code=THROTTLED' into the body.

A caller is verified by a token of --jwt-issuer, or by a proxy in front that names it
in --trusted-header; then a retry with a renewed token gets the recorded answer. Semel
tells other callers apart by the credentials that they send, such as Authorization,
Cookie or X-Api-Key: a retry with a renewed one gets 409 other_caller, and never makes
a second call. A caller without any is accepted from this machine only, and never
through a proxy.

Operators settle held calls at the address of --admin, with the token in
--admin-token-file; without one, every program on this machine is an operator there.
Callers that the other flags verify never are.

The first line of the output names the address, and with --json the
` + addressesLong + ` For more than one upstream, or other policies, see
'semel serve'.`

func newProxy() *cobra.Command {
	var f proxyFlags
	cmd := &cobra.Command{
		Use:   "proxy URL",
		Short: "Guard one upstream",
		Long:  proxyLong,
		Example: `  semel proxy http://127.0.0.1:3000
  semel proxy http://127.0.0.1:3000 --listen 127.0.0.1:0 --store memory: --json
  semel proxy https://api.example.com --profile stripe
  semel proxy http://127.0.0.1:3000 --jwt-issuer https://id.example.com \
    --jwks https://id.example.com/jwks.json --jwt-audience shop`,
		Args: oneArg("which upstream? Give its URL, such as http://127.0.0.1:3000"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if u, err := url.Parse(args[0]); err != nil || u.Host == "" || !slices.Contains([]string{"http", "https", "h2c"}, u.Scheme) {
				return usage("%q is not an http, https or h2c URL such as http://127.0.0.1:3000", args[0])
			}
			op, route, err := f.settings(args[0])
			if err != nil {
				return err
			}
			return f.guard(cmd, args[0], "", op, []config.Route{route}, config.Servers{})
		},
	}
	f.register(cmd.Flags())
	return jsonFlag(cmd)
}

// guard runs a service with one operation and one door, at a path; empty: at any. It prints where.
func (f *upstreamFlags) guard(cmd *cobra.Command, upstream, path string, op config.Operation, routes []config.Route, servers config.Servers) error {
	cfg, err := f.configuration(cmd, op, routes, servers)
	if err != nil {
		return err
	}
	return serve(cmd.Context(), cmd.ErrOrStderr(), service.Options{Config: cfg}, func(s *service.Server) error {
		out := cmd.OutOrStdout()
		if !asJSON(cmd) {
			u, _ := url.Parse(upstream)
			_, err := fmt.Fprintf(out, "guarding %s on http://%s%s\n", cmp.Or(u.Redacted(), upstream), s.DataAddr(), path)
			return err
		}
		return printAddresses(out, s, cfg, path)
	})
}

func (f *upstreamFlags) configuration(cmd *cobra.Command, op config.Operation, routes []config.Route, servers config.Servers) (*config.Config, error) {
	cfg, _, err := loadSource(cmd, config.Source{Flags: map[string]string{"listen": f.listen, "admin": f.admin, "store": f.store, "api": config.APIOff, "admin-token-file": f.adminToken}})
	if err != nil {
		return nil, err
	}
	if err := f.apply(cfg); err != nil {
		return nil, err
	}
	cfg, err = cfg.With(op, routes, servers)
	return cfg, byFlags(cmd, err)
}
