package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel/bench/internal/benchproxy"
)

func newProxy() *cobra.Command {
	var asJSON bool
	var opts benchproxy.Options
	cmd := &cobra.Command{
		Use:   "proxy",
		Short: "Measure the reverse proxy and the execution API",
		Long: `Measure how many requests per second go through Semel as a reverse proxy, with
the embedded store and a new key for each, and how many pairs of begin and
complete through the execution API.

With --compare a bare httputil.ReverseProxy takes turns with it, in the order
ABBA, in the same process, between the same clients and the same upstream. The
ratio is the median over the rounds of ours/bare.

The JSON has connections, body_bytes, answer_bytes, cpus and go; ours, bare and api,
each as 'go run ./bench store' has them; and ratio, ratio_of_totals and rounds (ours,
bare, ratio). The exit code is 1 if a request failed.`,
		Example: `  go run ./bench proxy --compare --duration 5s --json`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := opts.Validate(); err != nil {
				return &usageError{err}
			}
			opts.Progress = progress(cmd)
			report, err := benchproxy.Run(cmd.Context(), opts)
			if report.Ours == nil {
				return err
			}
			if asJSON {
				return errors.Join(err, printJSON(cmd.OutOrStdout(), report))
			}
			printProxy(cmd.OutOrStdout(), &report)
			return err
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&opts.Compare, "compare", false, "take turns with a bare reverse proxy")
	flags.DurationVar(&opts.Duration, "duration", 5*time.Second, "how long to measure each")
	flags.IntVar(&opts.Connections, "connections", 128, "clients that send at the same time")
	flags.IntVar(&opts.Rounds, "rounds", 6, "turns that each of them takes")
	flags.IntVar(&opts.BodyBytes, "body-bytes", 256, "size of each request's body")
	flags.IntVar(&opts.AnswerBytes, "answer-bytes", 256, "size of each answer's body")
	flags.StringVar(&opts.Dir, "dir", "", "`directory` for the store; defaults to that for temporary files")
	jsonFlag(cmd, &asJSON)
	return cmd
}

// printProxy writes the report as a table.
func printProxy(w io.Writer, r *benchproxy.Report) {
	fmt.Fprintf(w, "%d connections, %d byte requests, %d byte answers, %d CPUs, %s\n\n", r.Connections, r.BodyBytes, r.AnswerBytes, r.CPUs, r.Go)
	row := measures(w)
	row("semel, embedded store", r.Ours)
	row(r.ComparedWith, r.Bare)
	row("execution API, pairs", r.API)
	if r.Bare != nil {
		fmt.Fprintf(w, "\nsemel / bare: %.3f (median of %d rounds; %.3f over all)\n", r.Ratio, len(r.Rounds), r.RatioOfTotals)
	}
}
