package cli

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel/internal/service"
	"github.com/semelhq/semel/internal/service/config"
)

// byFlags names the flags that wrong settings came from.
func byFlags(cmd *cobra.Command, err error) error {
	errs, _ := errors.AsType[config.Errors](err)
	for i := range errs {
		path := errs[i].Path
		name := strings.ReplaceAll(path[strings.LastIndex(path, ".")+1:], "_", "-")
		if cmd.Flags().Lookup(name) != nil {
			errs[i].Path = "--" + name
		}
	}
	return err
}

func newProxy() *cobra.Command {
	var listen, admin, adminToken, store string
	var asJSON bool
	var callers callerFlags
	var f proxyFlags
	cmd := &cobra.Command{
		Use:   "proxy URL",
		Short: "Guard one upstream",
		Long: `Guard one upstream: requests of all paths go there, and those with an
Idempotency-Key reach it once, whatever their method, except GET, HEAD, OPTIONS and
TRACE. Requests without a key pass as they are, unless --key is required, as it is
with --profile acp. What can't be replayed, such as a stream, is passed through, and
its duplicates get 410. An upgrade to another protocol with a key is refused.

If the upstream got a request and never answered, Semel can't know whether the work
was done. It holds the call, and nobody runs it again, unless you say with
--on-abandoned retry that repeating is harmless. --reconcile names a URL to ask.
--answers says what an answer means, if you know all that is in front of the upstream:
not_executed=503 runs the next delivery, unknown=500 holds the call, and final=419
gives every duplicate the same. 'final=302 header:Location=/x*' looks at a header, and
'not_executed=200 json:/error/code=THROTTLED' into the body.

A caller is verified by a token of --jwt-issuer, or by a proxy in front that names it
in --trusted-header; then a retry with a renewed token gets the recorded answer.
Others are told apart by the credentials that they send, such as Authorization,
Cookie or X-Api-Key: there a retry with a renewed one gets 409 other_caller, and
never makes a second call. A caller without any is accepted from this machine only,
which a request that came through a proxy did not come from.

Operators settle held calls at the address of --admin. They show the token in
--admin-token-file; without one, every program on this machine is an operator there.
The callers that the other flags verify never are.

The first line of the output names the address. With --json it is
{"listen":"HOST:PORT","url":"http://HOST:PORT","admin":"HOST:PORT","admin_url":…}.
Port 0 picks a free port. For more than one upstream, or other policies, see
'semel serve'.`,
		Example: `  semel proxy http://127.0.0.1:3000
  semel proxy http://127.0.0.1:3000 --listen 127.0.0.1:0 --store memory: --json
  semel proxy https://api.example.com --profile stripe
  semel proxy http://127.0.0.1:3000 --jwt-issuer https://id.example.com \
    --jwks https://id.example.com/jwks.json --jwt-audience shop`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usage("%s needs the URL of one upstream", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			u, err := url.Parse(args[0])
			if err != nil || u.Host == "" || !slices.Contains([]string{"http", "https", "h2c"}, u.Scheme) {
				return usage("%q is not an http, https or h2c URL", args[0])
			}
			cfg, _, err := loadSource(cmd, config.Source{Flags: map[string]string{"listen": listen, "admin": admin, "store": store, "api": config.APIOff, "admin-token-file": adminToken}})
			if err != nil {
				return reportConfig(cmd, err)
			}
			op, route, err := f.settings(args[0])
			if err != nil {
				return err
			}
			err = callers.apply(cfg, &route)
			if err != nil {
				return err
			}
			cfg.Listen.TrustedProxies, cfg.Limits.ReadTimeout = f.trusted, config.Duration(f.readTimeout)
			cfg.Limits.ShutdownDelay = config.Duration(f.shutdownDelay)
			if cfg, err = cfg.With(op, route); err != nil {
				return reportConfig(cmd, byFlags(cmd, err))
			}
			log, err := newLogger(cmd.ErrOrStderr(), cfg.Log)
			if err != nil {
				return err
			}
			return serve(cmd.Context(), service.Options{Config: cfg, Log: log, Version: buildVersion(debug.ReadBuildInfo()).Version}, func(s *service.Server) error {
				out := cmd.OutOrStdout()
				if !asJSON {
					_, err := fmt.Fprintf(out, "guarding %s on http://%s\n", cmp.Or(u.Redacted(), args[0]), s.DataAddr())
					return err
				}
				return printAddresses(out, s, cfg)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&listen, "listen", "127.0.0.1:8480", "`address` for requests")
	flags.StringVar(&admin, "admin", "127.0.0.1:0", "`address` for operators")
	flags.StringVar(&adminToken, "admin-token-file", "", "`file` with the token of operators")
	flags.StringVar(&store, "store", "pebble:./semel-data", "pebble, postgres, redis, memory")
	f.register(flags)
	callers.register(flags)
	jsonFlag(cmd, &asJSON)
	return cmd
}
