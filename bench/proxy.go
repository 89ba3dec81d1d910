package main

import (
	"errors"
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
ratio is the median over the rounds of semel/bare.

The JSON has connections, body_bytes, answer_bytes, cpus, go; semel and bare, each
with requests, seconds, requests_per_second, p50_us, p99_us, max_us, errors and
first_error; ratio, ratio_of_totals and rounds (semel, bare, ratio); and api with
pairs, seconds and pairs_per_second. The exit code is 1 if a request failed.`,
		Example: `  go run ./bench proxy --compare --duration 5s --json`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := opts.Validate(); err != nil {
				return &usageError{err}
			}
			opts.Progress = progress(cmd)
			report, err := benchproxy.Run(cmd.Context(), opts)
			if report.Semel.Requests == 0 {
				return err
			}
			if asJSON {
				return errors.Join(err, printJSON(cmd.OutOrStdout(), report))
			}
			report.Print(cmd.OutOrStdout())
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
