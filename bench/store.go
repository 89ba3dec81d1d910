package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel/bench/internal/benchstore"
	"github.com/semelhq/semel/store"
)

func newStore() *cobra.Command {
	var store, compare string
	var asJSON bool
	var opts benchstore.Options
	cmd := &cobra.Command{
		Use:   "store",
		Short: "Measure the engine on a store",
		Long: `Measure the engine on a store: how many new keys concurrent callers begin and
complete, which are two durable writes each, and how long that takes. For replays,
contention and evidence see the benchmarks of the stores: go test -bench . ./store/...

With --compare a loop without an engine takes turns with it, in the order ABBA,
and makes two writes of the same sizes under each key. The ratio is the median
over the rounds of engine/bare. What it is depends on the store:
  pebble    synced writes to a Pebble in the same directory, with the same cache,
            memory table and filters
  postgres  one prepared INSERT and one prepared UPDATE, each a transaction of its
            own, in a table with the same columns and indexes, on 16 connections
  redis     SET NX and SET, through a client with the same settings, which sends
            what concurrent callers ask for together
With --compare URL, where URL is that of a Redis and the store is pebble, the
embedded store takes turns with SET NX and SET there.

With --records the store is filled with completed records first; then replays of
random ones, by two callers per processor, and new calls are measured, once the
store has put the records in order. With --compare too, a store of 10000
records takes turns with the large one; the scale ratios are the medians over
the rounds of large/small.

The data are in a subdirectory of DIR, which is made if it is not there and may
hold nothing else; in schemas of the database; or under prefixes in Redis. The
names of those begin with semel_bench_. All are removed at the end unless --keep
is given.

The JSON has store, callers, result_bytes, cpus, go, resident_bytes and
peak_resident_bytes, and where they apply: durability (level, settings,
unsafe), what the store's settings promise; ours and bare, each with operations,
seconds, ops_per_second, latency (p50_us, p90_us, p99_us, max_us), allocs_per_op,
bytes_per_op, errors and first_error; compared_with, what bare is, and
bare_durability, where it is on another server; ratio, ratio_of_totals and rounds
(ours, bare, ratio); claim_bytes and outcome_bytes, the sizes written; filled and
small, each with records, fill_seconds, replay, execute, resident_bytes and
peak_resident_bytes; scale_ratio for new calls and replay_scale_ratio for
replays. The exit code is 1 if an operation failed.`,
		Example: `  go run ./bench store --store memory: --callers 1 --result-bytes 100
  go run ./bench store --store pebble:bench.dir --callers 256 --compare --json
  go run ./bench store --store pebble:bench.dir --records 1000000 --compare
  go run ./bench store --store postgres://localhost/test --callers 64 --compare
  go run ./bench store --store pebble:bench.dir --compare redis://localhost`,
		Args: func(cmd *cobra.Command, args []string) error {
			// A flag with an optional value can't take the value as a separate argument,
			// so it is taken from here.
			if len(args) == 1 && compare == comparedBare && strings.Contains(args[0], "://") {
				compare, args = args[0], nil
			}
			return noArgs(cmd, args)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := readTarget(&opts, store, compare); err != nil {
				return err
			}
			if err := opts.Validate(); err != nil {
				return &usageError{err}
			}
			opts.Progress = progress(cmd)
			report, err := benchstore.Run(cmd.Context(), opts)
			if report == nil {
				return err
			}
			if asJSON {
				return errors.Join(err, printJSON(cmd.OutOrStdout(), report))
			}
			printStore(cmd.OutOrStdout(), report)
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&store, "store", "", "`store` to measure: pebble:DIR, a postgres, redis or\nredis-cluster URL, or memory:")
	flags.IntVar(&opts.Callers, "callers", 256, "how many callers work at the same time")
	flags.IntVar(&opts.ResultBytes, "result-bytes", 1024, "size of each outcome, in bytes")
	flags.DurationVar(&opts.Duration, "duration", 10*time.Second, "how long to measure each")
	flags.IntVar(&opts.Rounds, "rounds", 6, "turns that the engine and what it is compared with take")
	flags.IntVar(&opts.Records, "records", 0, "fill the store with so many completed records first")
	flags.StringVar(&compare, "compare", "", "take turns with a loop without an engine, there or at a Redis `URL`,\nand with a small store")
	flags.Lookup("compare").NoOptDefVal = comparedBare
	flags.BoolVar(&opts.Keep, "keep", false, "leave the data")
	jsonFlag(cmd, &asJSON)
	return cmd
}

// comparedBare is the value of --compare without a value.
const comparedBare = "bare"

// readTarget reads --store and --compare.
func readTarget(opts *benchstore.Options, store, compare string) error {
	kind, rest, _ := strings.Cut(store, ":")
	switch kind {
	case "pebble":
		opts.Dir = rest
	case "postgres", "postgresql", "redis", "rediss", "redis-cluster", "rediss-cluster":
		opts.URL = store
	}
	if opts.Dir == "" && opts.URL == "" && store != "memory:" {
		return usage("--store is %q, not pebble:DIR, a postgres, redis or redis-cluster URL, or memory:", store)
	}
	switch compare {
	case "", "false":
	case comparedBare, "true":
		opts.Compare = true
	default:
		opts.Compare, opts.Against = true, compare
	}
	return nil
}

// printStore writes the report as a table.
func printStore(w io.Writer, r *benchstore.Report) {
	fmt.Fprintf(w, "%s store, %d callers, %d byte results, %d CPUs, %s\n", r.Store, r.Callers, r.ResultBytes, r.CPUs, r.Go)
	printDurability(w, r.Store+" store", r.Durability)
	printDurability(w, r.ComparedWith, r.BareDurability)
	fmt.Fprintln(w)
	row := measures(w)
	for _, f := range []*benchstore.Filled{r.Filled, r.Small} {
		if f != nil {
			row(fmt.Sprintf("replay, %d", f.Records), &f.Replay)
			row(fmt.Sprintf("execute, %d", f.Records), &f.Execute)
		}
	}
	row("execute", r.Ours)
	row(r.ComparedWith, r.Bare)
	fmt.Fprintln(w)
	if r.Filled != nil {
		fmt.Fprintf(w, "%d records filled in %.1f s; then %s resident, %s at most\n", r.Filled.Records, r.Filled.FillSeconds, mebibytes(r.Filled.Resident), mebibytes(r.Filled.Peak))
	}
	if r.Small != nil {
		fmt.Fprintf(w, "throughput at %d records / at %d: %.2f for new calls, %.2f for replays\n", r.Filled.Records, r.Small.Records, r.ScaleRatio, r.ReplayScaleRatio)
	}
	if r.Bare != nil {
		fmt.Fprintf(w, "engine / %s: %.3f (median of %d rounds; %.3f over all), writing %d and %d bytes\n", r.ComparedWith, r.Ratio, len(r.Rounds), r.RatioOfTotals, r.ClaimBytes, r.OutcomeBytes)
	}
	fmt.Fprintf(w, "memory: %s resident, %s at most\n", mebibytes(r.Resident), mebibytes(r.Peak))
}

// measures writes the head of a table, and returns a function for its rows; nil has none.
func measures(w io.Writer) (row func(name string, m *benchstore.Measure)) {
	fmt.Fprintf(w, "%-28s %12s %10s %10s %10s %10s %10s %8s\n", "", "ops/s", "p50", "p90", "p99", "max", "allocs/op", "errors")
	return func(name string, m *benchstore.Measure) {
		if m != nil {
			l := m.Latency
			fmt.Fprintf(w, "%-28s %12.0f %10s %10s %10s %10s %10.1f %8d\n", name, m.OpsPerSecond,
				micros(l.P50), micros(l.P90), micros(l.P99), micros(l.Max), m.AllocsPerOp, m.Errors)
		}
	}
}

// printDurability writes what a store's settings promise, and which settings these are.
func printDurability(w io.Writer, name string, d *store.Durability) {
	if d == nil {
		return
	}
	settings := make([]string, len(d.Settings))
	for i, s := range d.Settings {
		settings[i] = fmt.Sprintf("%s=%q", s.Name, s.Value)
	}
	fmt.Fprintf(w, "%s: durability %s; %s\n", name, d.Level, strings.Join(settings, " "))
}

func micros(us float64) string {
	return time.Duration(us * 1e3).Round(10 * time.Nanosecond).String()
}

func mebibytes(n int64) string { return fmt.Sprintf("%d MiB", n>>20) }
