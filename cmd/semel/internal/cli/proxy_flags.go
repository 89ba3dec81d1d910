package cli

import (
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/internal/service/config"
)

// proxyFlags are the settings of the one operation and the one route that 'semel
// proxy' has.
type proxyFlags struct {
	profile, key, keyHeader, preserveHost                      string
	onAbandoned, inFlight, mode, reconcile                     string
	maxBody, maxResult                                         string
	timeout, readTimeout, lease, reconcileEvery, shutdownDelay time.Duration
	trusted, answers                                           []string
	route                                                      config.Route
}

func (f *proxyFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.profile, "profile", "ietf", "ietf, stripe, acp, ucp, adyen or x402")
	flags.StringVar(&f.key, "key", "", "optional or required (default optional, but for acp)")
	flags.StringVar(&f.keyHeader, "key-header", semelhttp.DefaultKeyHeader, "`header` with the key")
	flags.StringSliceVar(&f.route.Methods, "methods", nil, "`methods` that are guarded (default all but safe ones)")
	flags.StringSliceVar(&f.route.KeepHeaders, "keep-headers", nil, "`headers` of answers that duplicates get, beyond the usual")
	flags.StringSliceVar(&f.route.Origins, "origin", nil, "`origin` of pages that may read refusals and replays")
	flags.StringArrayVar(&f.answers, "answers", nil, "what an answer means: `LIST=STATUS`, such as not_executed=503")
	flags.StringVar(&f.onAbandoned, "on-abandoned", "hold", "unknown outcomes: hold or retry")
	flags.StringVar(&f.inFlight, "in-flight", "refuse", "running duplicates: refuse or wait")
	flags.StringVar(&f.mode, "mode", "enforce", "enforce, shadow or off")
	flags.StringVar(&f.reconcile, "reconcile", "", "`URL` to ask what became of a held call")
	flags.DurationVar(&f.reconcileEvery, "reconcile-every", 5*time.Second, "how often to ask about one call")
	flags.DurationVar(&f.timeout, "timeout", time.Minute, "how long the upstream may take")
	flags.DurationVar(&f.readTimeout, "read-timeout", time.Minute, "how long a body may stand still")
	flags.DurationVar(&f.shutdownDelay, "shutdown-delay", 0, "how long it still accepts requests when it stops, unready")
	flags.DurationVar(&f.lease, "lease", 30*time.Second, "how long a dead process counts as running")
	flags.StringVar(&f.maxBody, "max-body", "10MiB", "largest `size` of a request's body")
	flags.StringVar(&f.maxResult, "max-result", "1MiB", "largest `size` of an answer that is kept")
	flags.StringVar(&f.preserveHost, "preserve-host", "auto", "send the client's Host: auto, always or never")
	flags.BoolVar(&f.route.FreshConnections, "fresh-connections", false, "a connection of its own for each guarded request")
	flags.StringSliceVar(&f.trusted, "trusted-proxy", nil, "`address` or network of a proxy in front")
}

// settings are the flags as a configuration has them.
func (f *proxyFlags) settings(upstream string) (op config.Operation, rt config.Route, err error) {
	maxBody, err := config.ParseSize(f.maxBody)
	if err != nil {
		return op, rt, usage("--max-body: %q %w", f.maxBody, err)
	}
	maxResult, err := config.ParseSize(f.maxResult)
	if err != nil {
		return op, rt, usage("--max-result: %q %w", f.maxResult, err)
	}
	answers, err := f.named()
	if err != nil {
		return op, rt, err
	}
	key := semelhttp.KeyRule(f.key)
	if key == "" && f.profile != semelhttp.ACP().Name {
		key = semelhttp.KeyOptional
	}
	op = config.Operation{
		Name: "proxy", Repeats: config.Repeats{OnAbandoned: semel.AfterAbandon(f.onAbandoned), InFlight: semel.InFlightRule(f.inFlight)}, MaxResult: maxResult,
		ReconcileURL: f.reconcile, ReconcileEvery: config.Duration(f.reconcileEvery), Lease: config.Duration(f.lease),
	}
	return op, config.Route{
		Match: "/", Upstream: upstream, Operation: op.Name, Profile: f.profile, Mode: f.mode, Selection: config.Selection{Key: key}, KeyHeader: f.keyHeader,
		Methods: f.route.Methods, KeepHeaders: f.route.KeepHeaders, Origins: f.route.Origins, MaxBody: maxBody, Forwarding: config.Forwarding{Timeout: config.Duration(f.timeout), Answers: answers}, PreserveHost: f.preserveHost, FreshConnections: f.route.FreshConnections,
	}, nil
}

// named are the upstream's answers by what they mean, as --answers has them.
func (f *proxyFlags) named() (a config.Answers, err error) {
	lists := map[string]*[]string{"not_executed": &a.NotExecuted, "unknown": &a.Unknown, "final": &a.Final}
	for _, text := range f.answers {
		name, entry, ok := strings.Cut(text, "=")
		list := lists[name]
		if list == nil || !ok {
			return a, usage("--answers %q is none of not_executed=STATUS, unknown=STATUS and final=STATUS, such as not_executed=503", text)
		}
		*list = append(*list, entry)
	}
	return a, nil
}
