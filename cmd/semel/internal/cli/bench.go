package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel/cmd/semel/internal/benchstore"
)

func newBench() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure how fast Semel is on this machine",
		Example: `  semel bench store --store memory:
  semel bench proxy --compare`,
	}
	cmd.AddCommand(newBenchStore(), newBenchProxy())
	return cmd
}

func newBenchStore() *cobra.Command {
	var store, load string
	var asJSON bool
	var opts benchstore.Options
	cmd := &cobra.Command{
		Use:   "store",
		Short: "Measure the engine on a store",
		Long: `Measure the engine on a store: what concurrent callers get done, and how long
single operations take.

Loads:
  execute   begin and complete new keys: two durable writes each
  replay    begin keys that have an outcome
  mixed     each new key, then a replay of it: half are duplicates

With --compare a bare Pebble loop takes turns with the engine, in the order
ABBA, in the same directory and process. It makes two synced writes of the same
sizes under one key, with the same cache, memory table and filters, and does
nothing else. The ratio is the median over the rounds of engine/bare.

With --records the store is filled with completed records first; then replays of
random ones, by two callers per processor, and new calls are measured, once the
store has put the records in order. With --compare too, a store of 10000
records takes turns with the large one; the scale ratios are the medians over
the rounds of large/small.

The data are in a subdirectory of DIR, which is made if it is not there and may
hold nothing else. It is removed at the end unless --keep is given.

The JSON has store, load, callers, result_bytes, cpus, go, resident_bytes and
peak_resident_bytes, and where they apply: ours and bare, each with operations,
seconds, ops_per_second, latency (p50_us, p90_us, p99_us, max_us), allocs_per_op,
bytes_per_op, errors and first_error; ratio, ratio_of_totals and rounds (ours,
bare, ratio); claim_bytes and outcome_bytes, the sizes written; filled and small,
each with records, fill_seconds, replay, execute, resident_bytes and
peak_resident_bytes; scale_ratio for new calls and replay_scale_ratio for
replays. The exit code is 1 if an operation failed.`,
		Example: `  semel bench store --store memory: --callers 1 --result-bytes 100
  semel bench store --store pebble:bench.dir --callers 256 --compare --json
  semel bench store --store pebble:bench.dir --records 1000000 --compare`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			kind, dir, _ := strings.Cut(store, ":")
			switch {
			case kind == "pebble" && dir != "":
				opts.Dir = dir
			case store != "memory:":
				return usage("--store is %q, not pebble:DIR or memory:", store)
			}
			opts.Load = benchstore.Load(load)
			if err := opts.Validate(); err != nil {
				return usage("%w", err)
			}
			opts.Progress = func(format string, args ...any) {
				fmt.Fprintf(cmd.ErrOrStderr(), format+"\n", args...)
			}
			report, err := benchstore.Run(cmd.Context(), opts)
			if report == nil {
				return err
			}
			if asJSON {
				return errors.Join(err, printJSON(cmd.OutOrStdout(), report))
			}
			printBench(cmd.OutOrStdout(), report)
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&store, "store", "", "`store` to measure: pebble:DIR or memory:")
	flags.IntVar(&opts.Callers, "callers", 256, "how many work at the same time")
	flags.IntVar(&opts.ResultBytes, "result-bytes", 1024, "size of each outcome, in bytes")
	flags.DurationVar(&opts.Duration, "duration", 10*time.Second, "how long each load is measured")
	flags.IntVar(&opts.Rounds, "rounds", 6, "turns that a load and what it is compared with take")
	flags.StringVar(&load, "load", string(benchstore.Execute), "`load`: execute, replay or mixed")
	flags.IntVar(&opts.Records, "records", 0, "fill the store with so many completed records first")
	flags.BoolVar(&opts.Compare, "compare", false, "take turns with a bare Pebble loop, and with a small store")
	flags.BoolVar(&opts.Keep, "keep", false, "leave the data in DIR")
	jsonFlag(cmd, &asJSON)
	return cmd
}

// printBench writes the report as a table.
func printBench(w io.Writer, r *benchstore.Report) {
	fmt.Fprintf(w, "%s store, %d callers, %d byte results, %d CPUs, %s\n\n", r.Store, r.Callers, r.ResultBytes, r.CPUs, r.Go)
	fmt.Fprintf(w, "%-24s %12s %10s %10s %10s %10s %10s %8s\n", "", "ops/s", "p50", "p90", "p99", "max", "allocs/op", "errors")
	row := func(name string, m *benchstore.Measure) {
		if m != nil {
			l := m.Latency
			fmt.Fprintf(w, "%-24s %12.0f %10s %10s %10s %10s %10.1f %8d\n", name, m.OpsPerSecond,
				micros(l.P50), micros(l.P90), micros(l.P99), micros(l.Max), m.AllocsPerOp, m.Errors)
		}
	}
	for _, f := range []*benchstore.Filled{r.Filled, r.Small} {
		if f != nil {
			row(fmt.Sprintf("replay, %d", f.Records), &f.Replay)
			row(fmt.Sprintf("execute, %d", f.Records), &f.Execute)
		}
	}
	row(string(r.Load), r.Ours)
	row("bare Pebble", r.Bare)
	fmt.Fprintln(w)
	if r.Filled != nil {
		fmt.Fprintf(w, "%d records filled in %.1f s; then %s resident, %s at most\n", r.Filled.Records, r.Filled.FillSeconds, mebibytes(r.Filled.Resident), mebibytes(r.Filled.Peak))
	}
	if r.Small != nil {
		fmt.Fprintf(w, "throughput at %d records / at %d: %.2f for new calls, %.2f for replays\n", r.Filled.Records, r.Small.Records, r.ScaleRatio, r.ReplayScaleRatio)
	}
	if r.Bare != nil {
		fmt.Fprintf(w, "engine / bare Pebble: %.3f (median of %d rounds; %.3f over all), writing %d and %d bytes\n", r.Ratio, len(r.Rounds), r.RatioOfTotals, r.ClaimBytes, r.OutcomeBytes)
	}
	fmt.Fprintf(w, "memory: %s resident, %s at most\n", mebibytes(r.Resident), mebibytes(r.Peak))
}

func micros(us float64) string {
	return time.Duration(us * 1e3).Round(10 * time.Nanosecond).String()
}

func mebibytes(n int64) string { return fmt.Sprintf("%d MiB", n>>20) }
