package cli

import (
	"io"
	"math/rand/v2"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel/cmd/semel/internal/demo"
)

const demoLong = `See what retries do to a payment service, with and without Semel.

The demo starts two servers in processes of their own, on loopback and with their files
in one temporary directory: a toy payment service that charges as often as you ask it
to, and 'semel serve' in front of it. Then
  1. 20 orders are sent 25 times each, all at once, straight to the service,
  2. and the same through Semel;
  3. an order comes again under its key with another amount;
  4. an answer is lost, and the order sent again;
  5. Semel is killed (kill -9) after the service has charged and before Semel has
     heard of it, started again, and the order sent again. Semel holds it, asks
     the service what happened to it, and gives the answer that was lost.
The payment service counts the charges in its own ledger. That takes about five
seconds. Then everything keeps running until Control-C, so that you can try it out,
with a dashboard that shows all of it, unless you gave --exit or --json or a count
isn't what it should be. In the last case the exit code is 1. Nothing is left behind.

The JSON has ok, seed, seconds, faults (in words), and
  control, protected      orders, sent, requests, effects, executed, replayed,
                          in_flight, failed, differing, seconds
  conflict                status, code, detail, effects
  lost_response, crash    sent, effects, seen (status, code, replayed, times),
                          replayed, attempts, killed_pid, record, seconds
where effects are charges. With --json the story goes to standard error. With --report
the same is written to a page of HTML that needs nothing else, to show it to others.

With --agents, an agent calls tools that pay, over MCP: straight at a server and through
'semel mcp', on a connection that breaks. It ends by itself after about four seconds.
The JSON has straight, fields, echo, equal, joined and unknown instead.`

func newDemo() *cobra.Command {
	var exit bool
	var opts demo.Options
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "See what retries do to a payment service, with and without Semel",
		Long:  demoLong,
		Example: `  semel demo
  semel demo --agents
  semel demo --exit --json
  semel demo --exit --report demo.html
  semel demo --seed 42`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("seed") {
				opts.Seed = rand.Uint64N(1_000_000)
			}
			story := cmd.OutOrStdout()
			if asJSON(cmd) {
				story = cmd.ErrOrStderr()
			}
			opts.Screen, opts.Stay = demo.NewScreen(story), !exit && !asJSON(cmd)
			report, ok, err := demo.Tell(cmd.Context(), opts)
			if err != nil {
				return err
			}
			return printReport(cmd, report, func(io.Writer) error { return nil }, !ok)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&opts.Agents, "agents", false, "tell the story of agents that call tools over MCP")
	flags.BoolVar(&exit, "exit", false, "exit at the end of the story")
	flags.Uint64Var(&opts.Seed, "seed", 0, "seed of amounts, delays and the order of copies (default random)")
	flags.StringVar(&opts.Page, "report", "", "write the results to `FILE`, one page of HTML")
	flags.BoolVar(&opts.Unguarded, "unguarded", false, "switch the guard off, to see the demo fail")
	flags.Lookup("unguarded").Hidden = true
	cmd.MarkFlagsMutuallyExclusive("agents", "report")
	return jsonFlag(cmd)
}

// newDemoProvider runs this program as the payment service of the demo.
func newDemoProvider() *cobra.Command {
	var seed uint64
	cmd := &cobra.Command{
		Use:    demo.ProviderCommand,
		Short:  "Run the payment service of the demo until standard input ends",
		Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return demo.ServeProvider(cmd.Context(), seed, cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
	cmd.Flags().Uint64Var(&seed, "seed", 0, "seed of the delays")
	return cmd
}
