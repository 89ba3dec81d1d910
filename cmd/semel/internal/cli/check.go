package cli

import (
	"context"
	"errors"
	"os"
	"os/exec"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel/internal/check"
	"github.com/semelhq/semel/internal/check/a2a"
	"github.com/semelhq/semel/internal/check/activitypub"
	"github.com/semelhq/semel/internal/check/forrst"
	"github.com/semelhq/semel/internal/check/ids"
	"github.com/semelhq/semel/internal/check/webhook"
)

const checkHTTPLong = `Send one request of yours in the ways in which networks, clients and crashes send it,
and say for each requirement of a contract whether the service keeps it, on which clause
or paragraph that rests, and how to see it again by hand. That takes some seconds.

The file for --request has the request in its wire form, and further ones for single
groups, each below a line '### NAME'; docs/check.md has the names. {{unique}} in it is
new for each call. Without a file, a POST of a small JSON document is sent.

Each request may have a real effect, such as a charge. So each has the header
Semel-Check: 1, and a service that isn't on this machine is refused.

The exit code is 1 if a group is red. The JSON has ok, url, profile, seed, groups (green,
red, not observed) and verdicts: id, group, outcome (kept, broken, advised, not observed),
level, text, rests, saw, reproduce, transcript (at, took, request, answer, cut).`

// kits are the documents that implementations can be judged by, beside the contracts of http.
var kits = map[string]*check.Kit{"a2a": &a2a.Kit, "activitypub": &activitypub.Kit, "forrst": &forrst.Kit, "ids": &ids.Kit, "webhook": &webhook.Kit}

func checkCommand() *cobra.Command {
	all := []*cobra.Command{checkHTTP()}
	for name, kit := range kits {
		opts := check.Options{Flags: map[string]*string{}}
		sub := judging(&opts, kit.Run, &cobra.Command{Use: name + " URL", Short: kit.Short, Long: kit.Help(), Example: kit.Example})
		sub.Flags().StringArrayVar(&opts.Header, "header", nil, "`line` of the header of each request, such as a credential")
		for _, f := range kit.Flags {
			opts.Flags[f.Name] = sub.Flags().String(f.Name, f.Default, f.Usage)
		}
		all = append(all, sub)
	}
	return group(&cobra.Command{Use: "check", Short: "Judge any service by a specification"}, all...)
}

func checkHTTP() *cobra.Command {
	var opts check.Options
	cmd := &cobra.Command{
		Use: "http URL", Short: "Judge a service that takes idempotency keys over HTTP", Long: checkHTTPLong,
		Example: `  semel check http http://127.0.0.1:3000 --request charge.http --count http://127.0.0.1:3000/count`,
	}
	flags := cmd.Flags()
	flags.StringVar(&opts.Profile, "profile", "ietf", "`contract`: ietf, stripe, acp, ucp or adyen")
	requests := flags.String("request", "", "`file` with the request that has an effect; - is standard input")
	flags.StringVar(&opts.Count, "count", "", "`URL` that says how many effects there were")
	restart := flags.String("restart", "", "`command` that kills the service, starts it again and returns")
	flags.DurationVar(&opts.Window, "window", 0, "how long the service says that it keeps answers")
	flags.Uint64Var(&opts.Seed, "seed", 0, "seed of the history of many clients (default random)")
	return judging(&opts, func(ctx context.Context, opts check.Options) (*check.Report, error) {
		if *requests != "" {
			text, err := readAll(cmd, *requests)
			if err != nil {
				return nil, err
			}
			opts.Requests = string(text)
		}
		if *restart != "" {
			opts.Restart = func(ctx context.Context) error { return exec.CommandContext(ctx, "sh", "-c", *restart).Run() }
		}
		return check.Run(ctx, opts)
	}, cmd)
}

// judging makes a command judge the service that its argument names.
func judging(opts *check.Options, run func(ctx context.Context, opts check.Options) (*check.Report, error), cmd *cobra.Command) *cobra.Command {
	junit := cmd.Flags().String("junit", "", "`file` to write the verdicts to, as JUnit XML")
	cmd.Flags().BoolVar(&opts.Remote, "i-know-it-has-effects", false, "check a service that isn't on this machine")
	cmd.Args = oneArg("which service? Give its URL, such as http://127.0.0.1:3000")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		opts.URL = args[0]
		report, err := run(cmd.Context(), *opts)
		if _, ok := errors.AsType[*check.UsageError](err); ok {
			err = &usageError{err}
		}
		if *junit != "" && err == nil {
			err = os.WriteFile(*junit, report.JUnit(), 0o666)
		}
		if err != nil {
			return err
		}
		return printReport(cmd, report, report.Print, !report.OK)
	}
	return jsonFlag(cmd)
}
