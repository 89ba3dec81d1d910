package cli

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel/cmd/semel/internal/admin"
	"github.com/semelhq/semel/cmd/semel/internal/screen"
	"github.com/semelhq/semel/cmd/semel/internal/top"
)

// topTimeout bounds one question of semel top.
const topTimeout = 10 * time.Second

// topJSON is what semel top --json prints.
type topJSON struct {
	Figures  json.RawMessage `json:"figures"`
	Attempts *topAttempts    `json:"attempts"`
}

type topAttempts struct {
	InFlight       int     `json:"in_flight"`
	Held           int     `json:"held"`
	OldestInFlight float64 `json:"oldest_in_flight_seconds"`
	OldestHeld     float64 `json:"oldest_held_seconds"`
}

func newTop() *cobra.Command {
	var src recordSource
	var every, window time.Duration
	var sort string
	var once, asJSON bool
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Watch what happens on all nodes: decisions, duplicates, added latency, what is held",
		Long: `Watch what happens on all nodes of a service: what deliveries got, the share of
duplicates, what Semel added to their time in the newest minute that had any, what is in
flight and held, the operations, and the keys that are repeated most.

Keys: q quits, s goes on to the next order of operations and S back, r turns it around, +
and - look further back or less far, p pauses, Enter asks at once. The orders, also of
--sort, are duplicates, deliveries, share, simultaneous, failed and name.

With --once, and where the output isn't a terminal, one table is printed, and nothing is
left out. NO_COLOR leaves out colors.

What is in flight and held is counted by the node that is asked, in the whole store, and
may be a minute late.

` + runningLong + `

The JSON has figures, as GET /v1/figures of the API describes them, and attempts
(in_flight, held, oldest_in_flight_seconds, oldest_held_seconds), which is null as long
as the node has not counted them.`,
		Example: `  semel top
  semel top --interval 5s --window 15m --sort deliveries
  semel top --context prod --once`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			by, ok := top.ParseColumn(sort)
			switch {
			case !ok:
				return usage("--sort is %q, and one of %s", sort, strings.Join(top.ColumnNames(), ", "))
			case every < 200*time.Millisecond:
				return usage("--interval is %v, and at least 200ms", every)
			case !slices.Contains(top.Windows, window):
				return usage("--window is %v, and one of 5m, 15m, 1h, 3h, 24h, 168h", window)
			}
			at, tokenFile, err := src.running(cmd)
			if err != nil {
				return err
			}
			service, err := asked(at, tokenFile)
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			print := once || asJSON || !interactive(cmd.InOrStdin(), out)
			ctx, stop := patient(cmd.Context(), cmd.ErrOrStderr(), print && isTerminal(cmd.ErrOrStderr()))
			defer stop()
			fetch := func(d time.Duration) (*top.Snapshot, error) { return snapshot(ctx, service, d) }
			if print {
				return exitWith(printTop(out, fetch, window, by, asJSON))
			}
			_, err = screen.Run(cmd.Context(), top.New(top.Options{
				Fetch: fetch, Service: service.URL(), Interval: every, Window: window, Sort: by, Ink: screen.InkFor(os.Getenv), Now: time.Now,
			}), cmd.InOrStdin(), out)
			return err
		},
	}
	flags := cmd.Flags()
	src.add(flags)
	flags.DurationVar(&every, "interval", 2*time.Second, "time between two questions")
	flags.DurationVar(&window, "window", time.Hour, "how far back to look: 5m, 15m, 1h, 3h, 24h or 168h")
	flags.StringVar(&sort, "sort", top.Duplicates.String(), "`order` of the operations")
	flags.BoolVar(&once, "once", false, "print one table, and end")
	jsonFlag(cmd, &asJSON)
	return cmd
}

// snapshot asks a service for everything that top shows.
func snapshot(ctx context.Context, service *admin.Service, d time.Duration) (*top.Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, topTimeout)
	defer cancel()
	f, err := service.Figures(ctx, d)
	if err != nil {
		return nil, err
	}
	gauges, err := service.Gauges(ctx)
	if err != nil {
		return nil, err
	}
	s := &top.Snapshot{Figures: f}
	if open, ok := gauges.Attempts(); ok {
		s.Attempts = &open
	}
	return s, nil
}

// printTop prints one snapshot.
func printTop(out io.Writer, fetch top.Fetch, window time.Duration, by top.Column, asJSON bool) error {
	s, err := fetch(window)
	if err != nil {
		return err
	}
	if !asJSON {
		ink := screen.Ink{}
		if isTerminal(out) {
			ink = screen.InkFor(os.Getenv)
		}
		_, err = io.WriteString(out, s.Text(by, 0, ink))
		return err
	}
	line := topJSON{Figures: s.Figures.Text}
	if a := s.Attempts; a != nil {
		line.Attempts = &topAttempts{a.InFlight, a.Held, a.OldestInFlight.Seconds(), a.OldestHeld.Seconds()}
	}
	return printJSON(out, line)
}
