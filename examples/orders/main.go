// Command orders makes each order exactly once although every order is delivered
// several times at once by processes that are killed at random. Claim, order and
// outcome commit in one transaction of PostgreSQL.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// options are the flags.
type options struct {
	database string
	orders   int
	copies   int
	workers  int
	kills    int
	json     bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if len(os.Args) > 3 && os.Args[1] == workerCommand {
		if err := work(ctx, os.Args[2], os.Args[3], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	ok, err := run(ctx, os.Args[1:], os.Stdout)
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, err)
	}
	if !ok {
		os.Exit(1)
	}
}

// summary is what the example prints.
type summary struct {
	Orders int `json:"orders"`
	// Rows are the orders in the table, Counted those in the statistics, which no
	// constraint protects.
	Rows    int `json:"rows"`
	Counted int `json:"counted"`
	// Deliveries were handed to a worker; those whose worker died before it
	// answered were handed out again.
	Deliveries int `json:"deliveries"`
	Kills      int `json:"kills"`
	// Executed and Duplicates are the answers: the order was made by this delivery,
	// or before. Differing are those that name another order than the first answer
	// for the same cart.
	Executed   int `json:"executed"`
	Duplicates int `json:"duplicates_answered"`
	Differing  int `json:"differing"`
	// Deadlocks is the server's count. Held are records without an outcome.
	Deadlocks int     `json:"deadlocks"`
	Held      int     `json:"held"`
	Seconds   float64 `json:"seconds"`
}

// faults says which counts are wrong.
func (s *summary) faults(o *options) (faults []string) {
	off := func(bad bool, format string, args ...any) {
		if bad {
			faults = append(faults, fmt.Sprintf(format, args...))
		}
	}
	off(s.Rows != s.Orders, "%d rows for %d orders", s.Rows, s.Orders)
	off(s.Counted != s.Orders, "the statistics count %d orders of %d", s.Counted, s.Orders)
	off(s.Executed+s.Duplicates != s.Orders*o.copies, "%d answers to %d deliveries", s.Executed+s.Duplicates, s.Orders*o.copies)
	off(s.Executed > s.Orders, "%d deliveries say that they made one of %d orders", s.Executed, s.Orders)
	off(s.Differing > 0, "%d answers differ from the first for their cart", s.Differing)
	off(s.Deadlocks > 0, "%d deadlocks", s.Deadlocks)
	off(s.Held > 0, "%d records are held or have no outcome", s.Held)
	off(s.Kills != o.kills, "%d kills instead of %d", s.Kills, o.kills)
	return faults
}

func run(ctx context.Context, args []string, out io.Writer) (ok bool, err error) {
	var o options
	flags := flag.NewFlagSet("orders", flag.ContinueOnError)
	flags.StringVar(&o.database, "database", "", "URL of a PostgreSQL database, in which a schema is made and removed; without it a private server is started")
	flags.IntVar(&o.orders, "orders", 1000, "how many orders")
	flags.IntVar(&o.copies, "copies", 5, "how often each is delivered")
	flags.IntVar(&o.workers, "workers", 3, "how many processes deliver")
	flags.IntVar(&o.kills, "kills", 12, "how often one of them is killed")
	flags.BoolVar(&o.json, "json", false, "print JSON")
	if err := flags.Parse(args); err != nil {
		return errors.Is(err, flag.ErrHelp), err
	}
	if o.orders < 1 || o.copies < 1 || o.workers < 1 || o.kills < 0 || o.kills > o.orders*o.copies/2 {
		return false, errors.New("orders: the numbers must be above zero, and the kills at most half of the deliveries")
	}
	if o.database == "" {
		server, err := startServer(ctx)
		if err != nil {
			return false, err
		}
		defer func() { err = errors.Join(err, server.stop()) }()
		o.database = server.url()
	}
	start := time.Now()
	s, err := play(ctx, &o)
	if err != nil {
		return false, err
	}
	s.Seconds = time.Since(start).Seconds()
	faults := s.faults(&o)
	if o.json {
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		err = enc.Encode(s)
	} else {
		err = s.print(out)
	}
	for _, fault := range faults {
		fmt.Fprintln(os.Stderr, "off:", fault)
	}
	return err == nil && len(faults) == 0, err
}

func (s *summary) print(out io.Writer) error {
	_, err := fmt.Fprintf(out, `orders               %6d
rows                 %6d
counted              %6d
deliveries           %6d
kills                %6d
executed             %6d
duplicates answered  %6d
differing answers    %6d
deadlocks            %6d
held                 %6d
in                   %6.1f s
`, s.Orders, s.Rows, s.Counted, s.Deliveries, s.Kills, s.Executed, s.Duplicates, s.Differing, s.Deadlocks, s.Held, s.Seconds)
	return err
}
