package main

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel/bench/internal/benchinbox"
	"github.com/semelhq/semel/protocol/activitypub"
)

func newInbox() *cobra.Command {
	var store string
	var asJSON bool
	var opts benchinbox.Options
	cmd := &cobra.Command{
		Use:   "inbox",
		Short: "Measure an ActivityPub inbox",
		Long: `Measure how long senders wait for the answer of an ActivityPub inbox, over HTTP on
the loopback interface, with connections that are kept. Each sender delivers again
as soon as it has an answer; what it waits for includes the processors that it
shares with the inbox.

The store is filled first with the records of activities that were taken and
handled: completed, each with an outbox message that is delivered. Then it measures

  duplicates        deliveries of random activities that are in the store
  first deliveries  deliveries of new ones; each stays in the outbox, because
                    nothing handles it
  flood             new ones, each by 50 senders at once

Activities are not signed. What the inbox logs is formatted and thrown away.

The data are where those of 'go run ./bench store' are, and removed at the end.

The JSON has store, records, senders, body_bytes, budget_ms, cpus, go, fill_seconds
and durability (level, settings, unsafe), if the store can tell; duplicates and
first, each with deliveries, seconds, deliveries_per_second, latency (p50_us, p90_us,
p99_us, max_us, whatever the status), statuses (how many answers have each status
other than 202), errors and first_error; and flood with activities, copies,
duplicates and first. The exit code is 1 if an answer wasn't 202, if one was wrong,
or if p99 of duplicates is above 100 ms, which is as long as detection may take.`,
		Example: `  go run ./bench inbox --store memory:
  go run ./bench inbox --store pebble:bench.dir --json
  go run ./bench inbox --store redis://localhost --budget 1s`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := readTarget(&opts.Store, store, ""); err != nil {
				return err
			}
			if err := opts.Validate(); err != nil {
				return &usageError{err}
			}
			opts.Store.Progress = progress(cmd)
			report, err := benchinbox.Run(cmd.Context(), opts)
			if report == nil {
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
	flags.StringVar(&store, "store", "", "`store` to measure: pebble:DIR, a postgres, redis or\nredis-cluster URL, or memory:")
	flags.IntVar(&opts.Records, "records", 1_000_000, "fill the store with so many activities first")
	flags.IntVar(&opts.Senders, "senders", 200, "how many deliver at the same time")
	flags.IntVar(&opts.BodyBytes, "body-bytes", 1024, "about the size of each activity, in bytes")
	flags.DurationVar(&opts.Duration, "duration", 10*time.Second, "how long to measure each load")
	flags.DurationVar(&opts.Rest, "rest", 0, "how long to leave the store alone after it was filled, because\nservers go on working then")
	flags.DurationVar(&opts.Budget, "budget", activitypub.DefaultBudget, "after how long the inbox answers with 503")
	flags.BoolVar(&opts.Store.Keep, "keep", false, "leave the data")
	jsonFlag(cmd, &asJSON)
	return cmd
}
