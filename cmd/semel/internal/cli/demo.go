package cli

import (
	"errors"
	"math/rand/v2"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel/cmd/semel/internal/demo"
)

func newDemo() *cobra.Command {
	var asJSON, exit bool
	var opts demo.Options
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "See what retries do to a payment service, with and without Semel",
		Long: `See what retries do to a payment service, with and without Semel.

Two servers are started in processes of their own, on loopback and with their
files in one temporary directory: a toy payment service that charges as often as
it is asked to, and 'semel serve' in front of it. Then
  1. 20 orders are sent 25 times each, all at once, straight at the service,
  2. and the same through Semel;
  3. an order comes again under its key with another amount;
  4. an answer is lost, and the order sent again;
  5. Semel is killed (kill -9) after the service has charged and before Semel has
     heard of it, started again, and the order sent again. Semel holds it, asks
     the service what became of it, and gives the answer that was lost.
Charges are counted in the payment service's own ledger. That takes about five
seconds. Then everything stays up to be tried out, until control-C, with a
dashboard that shows all of it and what else operators see, unless --exit or
--json is given or a count is not what it should be. The exit code is 1 in the
last case. Nothing is left behind.

The JSON has ok, seed, seconds, faults (what is wrong, in words), and
  control, protected      orders, sent, requests, effects, executed, replayed,
                          in_flight, failed, differing, seconds
  conflict                status, code, detail, effects
  lost_response, crash    sent, effects, seen (status, code, replayed, times),
                          replayed, attempts, killed_pid, seconds
where effects are charges. With --json the story goes to standard error.`,
		Example: `  semel demo
  semel demo --exit --json
  semel demo --seed 42`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("seed") {
				opts.Seed = rand.Uint64N(1_000_000)
			}
			story := cmd.OutOrStdout()
			if asJSON {
				story = cmd.ErrOrStderr()
			}
			opts.Screen, opts.Stay = demo.NewScreen(story), !exit && !asJSON
			report, err := demo.Run(cmd.Context(), opts)
			if err != nil {
				return err
			}
			if asJSON {
				err = printJSON(cmd.OutOrStdout(), report)
			}
			if !report.OK {
				err = errors.Join(err, errReported)
			}
			return err
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&exit, "exit", false, "end when the story is told")
	flags.Uint64Var(&opts.Seed, "seed", 0, "seed of amounts, delays and the order of copies; by chance if not given")
	flags.BoolVar(&opts.Unguarded, "unguarded", false, "switch the guard off, to see the demo fail")
	if err := flags.MarkHidden("unguarded"); err != nil {
		panic(err) // the flag is defined above
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

// newDemoProvider is how the demo runs this program again as the payment service.
func newDemoProvider() *cobra.Command {
	var seed uint64
	cmd := &cobra.Command{
		Use:    demo.ProviderCommand,
		Short:  "Run the payment service of the demo until standard input ends",
		Hidden: true,
		Args:   noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return demo.ServeProvider(cmd.Context(), seed, cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
	cmd.Flags().Uint64Var(&seed, "seed", 0, "seed of the delays")
	return cmd
}
