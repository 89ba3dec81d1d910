//go:build linux

// Command chaos runs nodes of the service on one store, makes calls and injects faults at the
// same time, and checks what everybody observed; see docs/chaos.md.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/semelhq/semel/internal/chaos"
	"github.com/semelhq/semel/internal/pgtest"
)

func main() {
	if chaos.Child() {
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ok, err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	if !ok || err != nil {
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	chaos.Options
	stores string
	faults string
	log    string
	json   bool
	loud   bool
}

func parse(args []string) (o options, err error) {
	flags := flag.NewFlagSet("chaos", flag.ContinueOnError)
	flags.StringVar(&o.stores, "store", "all", strings.Join(chaos.Stores, ", ")+" or all")
	flags.Uint64Var(&o.Seed, "seed", rand.Uint64N(1_000_000), "what decides on calls and faults")
	flags.DurationVar(&o.Duration, "duration", time.Minute, "how long there are calls and faults, on each store")
	flags.IntVar(&o.Nodes, "nodes", 3, "how many nodes, on stores that allow several")
	flags.Float64Var(&o.Rate, "rate", 20, "calls a second, each with several deliveries")
	flags.BoolVar(&o.Clocks, "clocks", true, "build nodes whose clocks can be moved, which takes a minute or two the first time")
	flags.StringVar(&o.Binary, "binary", "", "the program that the nodes run, instead of one that is built; with -clocks one whose clocks can be moved")
	flags.StringVar(&o.faults, "faults", "", "only faults whose name this regular expression matches")
	flags.BoolVar(&o.Keep, "keep", false, "keep what the nodes have said, also of a run without a violation")
	flags.StringVar(&o.log, "log", "", "file that gets the histories of all calls")
	flags.BoolVar(&o.json, "json", false, "print JSON, a line for each store")
	flags.BoolVar(&o.loud, "v", false, "say what is going on")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 || o.Nodes < 1 || o.Rate <= 0 || o.Duration <= 0 {
		return o, errors.New("chaos: there are no arguments, and the numbers are above zero")
	}
	if o.faults != "" {
		if o.Faults, err = regexp.Compile(o.faults); err != nil {
			return o, err
		}
	}
	return o, nil
}

func run(ctx context.Context, args []string, out, log io.Writer) (ok bool, err error) {
	o, err := parse(args)
	if err != nil {
		return false, err
	}
	dir, err := os.MkdirTemp("", "semel-chaos-build-")
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir), pgtest.RemoveTemplate()) }()
	if o.Binary == "" {
		if o.Binary, err = chaos.Build(dir, o.Clocks); err != nil {
			return false, err
		}
	}
	if o.log != "" {
		file, err := os.Create(o.log)
		if err != nil {
			return false, err
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		o.Log = file
	}
	if o.loud {
		o.Tell = func(text string) { fmt.Fprintln(log, text) }
	}
	stores := chaos.Stores
	if o.stores != "all" {
		stores = strings.Split(o.stores, ",")
	}
	ok = true
	for _, o.Store = range stores {
		rep, err := chaos.Run(ctx, o.Options)
		if err != nil {
			return false, fmt.Errorf("%s: %w", o.Store, err)
		}
		ok = ok && rep.OK()
		if !o.json {
			rep.Print(out)
		} else if err := json.NewEncoder(out).Encode(rep); err != nil {
			return false, err
		}
	}
	return ok, nil
}
