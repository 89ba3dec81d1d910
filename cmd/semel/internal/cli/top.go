package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/cmd/semel/internal/admin"
)

// topTimeout bounds one request to a service.
const topTimeout = 10 * time.Second

// topWindows are the values of --window.
var topWindows = []time.Duration{5 * time.Minute, 15 * time.Minute, time.Hour, 3 * time.Hour, 24 * time.Hour, 7 * 24 * time.Hour}

type topOptions struct {
	every, window time.Duration
	once          bool
}

func newTop() *cobra.Command {
	var src recordSource
	var opts topOptions
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Watch all nodes: what to do, decisions, stopped duplicates, added latency",
		Long: `Watch all nodes of a service. The first lines list what somebody has to do, according to
the node that you ask, such as deciding about held calls or repairing a store that doesn't
answer. Then come the decisions, the latency that Semel added in the last minute with
deliveries, calls in flight and held, the operations, and the keys that repeat most.

A delivery counts as stopped if it got another one's outcome. The share compares stopped
deliveries with executed and stopped ones; it ignores polls, conflicts and refusals.

The table is updated until you interrupt it. On a terminal it is updated in place, with the
first operations and keys; elsewhere each update is printed in full, below the last one.
--once and --json print it once. Operations with the most stopped duplicates come first.

The numbers of calls in flight and held are for the whole store, and may be a minute old.
If your role is in one tenant, you see the figures of that tenant, without these numbers.

` + runningLong + `

The JSON has figures, as GET /v1/figures of the API describes them, and attempts
(in_flight, held, oldest_in_flight_seconds, oldest_held_seconds), which is null until the
node has counted them, and for who may see only one tenant.`,
		Example: `  semel top
  semel top --interval 5s --window 15m
  semel top --context prod --once`,
		RunE: func(cmd *cobra.Command, _ []string) error { return opts.run(cmd, &src) },
	}
	flags := cmd.Flags()
	src.add(flags)
	flags.DurationVar(&opts.every, "interval", 2*time.Second, "time between two tables")
	flags.DurationVar(&opts.window, "window", time.Hour, "how far back to look: 5m, 15m, 1h, 3h, 24h or 168h")
	flags.BoolVar(&opts.once, "once", false, "print one table and exit")
	return jsonFlag(cmd)
}

func (o *topOptions) run(cmd *cobra.Command, src *recordSource) error {
	switch {
	case o.every < 200*time.Millisecond:
		return usage("--interval is %v; it must be at least 200ms", o.every)
	case !slices.Contains(topWindows, o.window):
		return usage("--window is %v, not one of 5m, 15m, 1h, 3h, 24h, 168h", o.window)
	}
	service, _, err := src.running(cmd)
	if err != nil {
		return err
	}
	ctx, stop := patient(cmd.Context(), cmd.ErrOrStderr(), isTerminal(cmd.ErrOrStderr()))
	defer stop()
	out := cmd.OutOrStdout()
	t := &topTable{out: out, title: fmt.Sprintf("semel top  %s  last %s", printable(service.URL()), ageOf(o.window))}
	fetch := func() (*topSnapshot, error) { return askTop(ctx, service, o.window) }
	if !o.once && !asJSON(cmd) {
		t.inPlace = isTerminal(out)
		return exitWith(t.watch(cmd.Context(), o.every, fetch))
	}
	s, err := fetch()
	if err != nil {
		return exitWith(err)
	}
	return printReport(cmd, s, func(w io.Writer) error { _, err := io.WriteString(w, t.text(s)); return err }, false)
}

// topSnapshot is the state at one time, and what semel top --json prints.
type topSnapshot struct {
	Figures *admin.Figures `json:"figures"`
	// Attempts is nil until the node has counted them.
	Attempts *admin.Attempts `json:"attempts"`
	checks   []admin.Check   // of the node
}

// askTop reads a snapshot from a service.
func askTop(ctx context.Context, service *admin.Service, d time.Duration) (*topSnapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, topTimeout)
	defer cancel()
	f, err := service.Figures(ctx, d)
	if err != nil {
		return nil, err
	}
	attempts, err := service.Attempts(ctx)
	if e, ok := errors.AsType[*semel.Error](err); err != nil && !(ok && e.Code == semel.CodeForbidden) { // they are of all tenants
		return nil, err
	}
	checks, err := service.Ready(ctx)
	return &topSnapshot{f, attempts, checks}, err
}
