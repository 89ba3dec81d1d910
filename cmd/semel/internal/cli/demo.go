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
it is asked to, and its twin behind Semel. Then
  1. 20 orders are sent 25 times each, all at once, straight at the service,
  2. and the same to the twin;
  3. an order comes again under its key with another amount;
  4. an answer is lost, and the order sent again;
  5. the twin is killed (kill -9) after the service has charged and before it has
     heard of it, started again, and the order sent again.
Charges are counted in the payment service's own ledger. The exit code is 1 if a
count is not what it should be. The demo takes about five seconds and leaves
nothing behind.

The JSON has ok, seed, seconds, faults (what is wrong, in words), and
  control, protected      orders, sent, requests, effects, executed, replayed,
                          in_flight, failed, differing, seconds
  conflict                status, code, detail, effects
  lost_response, crash    sent, effects, seen (status, code, replayed, times),
                          replayed, killed_pid, seconds
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
			opts.Screen = demo.NewScreen(story)
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
	flags.BoolVar(&exit, "exit", false, "end when the story is told, as it always does; for scripts that say so")
	flags.Uint64Var(&opts.Seed, "seed", 0, "seed of amounts, delays and the order of copies; by chance if not given")
	flags.BoolVar(&opts.Unguarded, "unguarded", false, "take the twin's guard away, to see the demo fail")
	if err := flags.MarkHidden("unguarded"); err != nil {
		panic(err) // the flag is defined above
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

// newDemoChild is how the demo runs this program again as one of its servers.
func newDemoChild() *cobra.Command {
	var child demo.Child
	cmd := &cobra.Command{
		Use:    demo.ChildCommand + " provider|worker",
		Short:  "Run a server of the demo until standard input ends",
		Hidden: true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usage("%s needs the name of one server", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			child.Role = args[0]
			return child.Serve(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	flags.Uint64Var(&child.Seed, "seed", 0, "seed of the provider's delays")
	flags.StringVar(&child.Provider, "provider", "", "URL of the payment service")
	flags.StringVar(&child.Dir, "dir", "", "directory of the store")
	flags.BoolVar(&child.Unguarded, "unguarded", false, "run without the guard")
	return cmd
}
