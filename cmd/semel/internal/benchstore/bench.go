// Package benchstore measures how fast the engine runs on a store: new calls,
// replays and both, from concurrent callers, and beside it a bare Pebble loop
// that makes the same two synced writes.
package benchstore

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store/memstore"
	"github.com/semelhq/semel/store/pebblestore"
)

// Options says what is measured. Every field is needed unless it says otherwise.
type Options struct {
	// Dir is where the Pebble store is made; empty for the memory store.
	Dir string
	// Callers is how many work at the same time.
	Callers int
	// ResultBytes is the size of each outcome.
	ResultBytes int
	// Duration is how long each load is measured.
	Duration time.Duration
	// Rounds is how many turns a load and what it is compared with take.
	Rounds int
	Load   Load
	// Records is how many completed records the store holds before, if any.
	// Then replays and new calls are measured, whatever Load says.
	Records int
	// Compare measures the bare loop too, and, with Records, a store of
	// [SmallRecords]. It needs the Pebble store and [Execute].
	Compare bool
	// Keep leaves the data in Dir.
	Keep bool
	// Progress is told what is being done. Optional.
	Progress func(format string, args ...any)
}

const (
	// SmallRecords is the size that a store of many records is compared with.
	SmallRecords = 10_000
	// replayRecords is how many records are known where nobody says how many.
	replayRecords = 10_000
)

// Report is the result; semel bench store --json prints it.
type Report struct {
	Store       string `json:"store"` // "pebble" or "memory"
	Load        Load   `json:"load"`
	Callers     int    `json:"callers"`
	ResultBytes int    `json:"result_bytes"`
	CPUs        int    `json:"cpus"`
	Go          string `json:"go"`
	// Ours is the engine under Load, on a store that was empty before.
	Ours *Measure `json:"ours,omitempty"`
	// Bare is the bare loop, and Rounds the turns that both took. Ratio is the
	// median over the rounds of ours/bare in operations per second, and
	// RatioOfTotals that of all rounds together.
	Bare          *Measure `json:"bare,omitempty"`
	Rounds        []Round  `json:"rounds,omitempty"`
	Ratio         float64  `json:"ratio,omitempty"`
	RatioOfTotals float64  `json:"ratio_of_totals,omitempty"`
	// ClaimBytes and OutcomeBytes are the sizes of the two values that ours and
	// the bare loop write.
	ClaimBytes   int `json:"claim_bytes,omitempty"`
	OutcomeBytes int `json:"outcome_bytes,omitempty"`
	// Filled is a store that had Records before, and Small one of SmallRecords.
	Filled *Filled `json:"filled,omitempty"`
	Small  *Filled `json:"small,omitempty"`
	// ScaleRatio is the median over the turns of the operations per second of
	// new calls at Records divided by those at SmallRecords; ReplayScaleRatio
	// the same for replays.
	ScaleRatio       float64 `json:"scale_ratio,omitempty"`
	ReplayScaleRatio float64 `json:"replay_scale_ratio,omitempty"`
	// Memory is that of this process at the end.
	Memory
}

// Round is one turn of each, in operations per second.
type Round struct {
	Ours  float64 `json:"ours"`
	Bare  float64 `json:"bare"`
	Ratio float64 `json:"ratio"`
}

// Filled is what was measured on a store that had records before.
type Filled struct {
	Records     int     `json:"records"`
	FillSeconds float64 `json:"fill_seconds"`
	Replay      Measure `json:"replay"`
	Execute     Measure `json:"execute"`
	// Memory is that of this process after the loads on this store.
	Memory
}

// bench is one run.
type bench struct {
	opts    Options
	report  Report
	dir     *workDir // nil for the memory store
	callers []*caller
}

// Run measures. What it found until an error, or until ctx ended, is in the
// report. An operation that failed is an error.
func Run(ctx context.Context, opts Options) (report *Report, err error) {
	b := &bench{opts: opts, callers: newCallers(opts.Callers)}
	b.report = Report{
		Store: "memory", Load: opts.Load, Callers: opts.Callers, ResultBytes: opts.ResultBytes,
		CPUs: runtime.GOMAXPROCS(0), Go: runtime.Version(),
	}
	if opts.Dir != "" {
		b.report.Store = "pebble"
		if b.dir, err = openDir(opts.Dir); err != nil {
			return nil, err
		}
		if opts.Keep {
			b.progress("the data stay in %s", b.dir.path)
		}
		defer func() { err = errors.Join(err, b.dir.close(opts.Keep)) }()
	}
	if opts.Records > 0 {
		if err := b.filled(ctx); err != nil {
			return &b.report, err
		}
	}
	switch {
	case opts.Compare:
		err = b.compare(ctx)
	case opts.Records == 0:
		err = b.single(ctx)
	}
	b.report.Memory = readMemory()
	return &b.report, err
}

func (b *bench) progress(format string, args ...any) {
	if b.opts.Progress != nil {
		b.opts.Progress(format, args...)
	}
}

// open makes a store of its own with an engine on it.
func (b *bench) open(name string) (*target, semel.Store, error) {
	var store semel.Store = memstore.New()
	if b.dir != nil {
		var err error
		if store, err = pebblestore.Open(b.dir.sub(name), nil); err != nil {
			return nil, nil, err
		}
	}
	t, err := newTarget(store, b.opts.ResultBytes)
	if err != nil {
		return nil, nil, errors.Join(err, store.Close())
	}
	return t, store, nil
}

// single measures one load.
func (b *bench) single(ctx context.Context) (err error) {
	t, store, err := b.open("ours")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if b.opts.Load == Replay {
		if _, err := b.fill(ctx, t, store, replayRecords); err != nil {
			return err
		}
	}
	b.progress("%s: %d callers for %v", b.opts.Load, b.opts.Callers, b.opts.Duration)
	var all tally
	all.turn(ctx, b.callers, b.opts.Duration, t.operation(b.opts.Load))
	m := all.measure()
	b.report.Ours = &m
	return errors.Join(ctx.Err(), m.fault(string(b.opts.Load)))
}

// compare lets the engine and the bare loop take turns.
func (b *bench) compare(ctx context.Context) (err error) {
	t, store, err := b.open("ours")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	s, err := t.takeSample(ctx)
	if err != nil {
		return err
	}
	loop, err := openBare(b.dir.sub("bare"), t, s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, loop.close()) }()
	b.report.ClaimBytes, b.report.OutcomeBytes = len(loop.claim), len(loop.outcome)
	ours, theirs, rounds := b.alternate(ctx, "engine and bare Pebble", t.execute, loop.execute)
	m, n := ours.measure(), theirs.measure()
	b.report.Ours, b.report.Bare = &m, &n
	b.report.Ratio = median(rounds)
	if n.OpsPerSecond > 0 {
		b.report.RatioOfTotals = m.OpsPerSecond / n.OpsPerSecond
	}
	for _, r := range rounds {
		b.report.Rounds = append(b.report.Rounds, Round{Ours: r.first, Bare: r.second, Ratio: r.first / r.second})
	}
	return errors.Join(ctx.Err(), m.fault("ours"), n.fault("bare"))
}

// pair is one round, in operations per second.
type pair struct{ first, second float64 }

// alternate lets two operations take turns, in the order ABBA, so that what
// changes on the machine meanwhile hits both alike. A short turn of each before
// is not counted.
func (b *bench) alternate(ctx context.Context, what string, first, second operation) (x, y tally, rounds []pair) {
	turn := b.opts.Duration / time.Duration(b.opts.Rounds)
	var warm tally
	warm.turn(ctx, b.callers, turn/4, first)
	warm.turn(ctx, b.callers, turn/4, second)
	for i := range b.opts.Rounds {
		if ctx.Err() != nil {
			break
		}
		b.progress("%s: round %d of %d, %v each", what, i+1, b.opts.Rounds, turn)
		var p pair
		if i%2 == 0 {
			p.first = x.turn(ctx, b.callers, turn, first)
			p.second = y.turn(ctx, b.callers, turn, second)
		} else {
			p.second = y.turn(ctx, b.callers, turn, second)
			p.first = x.turn(ctx, b.callers, turn, first)
		}
		rounds = append(rounds, p)
	}
	return x, y, rounds
}

// median of the ratios; zero if there is none.
func median(rounds []pair) float64 {
	var ratios []float64
	for _, p := range rounds {
		if p.second > 0 {
			ratios = append(ratios, p.first/p.second)
		}
	}
	slices.Sort(ratios)
	n := len(ratios)
	if n == 0 {
		return 0
	}
	return (ratios[(n-1)/2] + ratios[n/2]) / 2
}

// Validate reports everything that is wrong with the options at once, in the
// words of the flags.
func (o *Options) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if o.Callers < 1 || o.Callers > 100_000 {
		bad("--callers is %d, not 1 to 100000", o.Callers)
	}
	if o.ResultBytes < 0 || o.ResultBytes > 16<<20 {
		bad("--result-bytes is %d, not 0 to %d", o.ResultBytes, 16<<20)
	}
	if o.Duration <= 0 {
		bad("--duration must be above zero")
	}
	if o.Rounds < 1 {
		bad("--rounds must be above zero")
	}
	if o.Records < 0 {
		bad("--records is negative")
	}
	if !slices.Contains(Loads, o.Load) {
		bad("--load is %q, not one of %v", o.Load, Loads)
	}
	if o.Compare && o.Dir == "" {
		bad("--compare needs --store pebble:DIR: there is nothing bare to compare the memory store with")
	}
	if o.Compare && o.Load != Execute {
		bad("--compare needs --load execute: the bare loop does nothing else")
	}
	return errors.Join(errs...)
}
