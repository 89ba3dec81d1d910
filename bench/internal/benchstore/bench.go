// Package benchstore measures how fast the engine runs on a store, with new calls of
// concurrent callers, compared with a bare loop that makes the same two writes
// without an engine.
package benchstore

import (
	"context"
	"errors"
	"runtime"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// SmallRecords is the size of the store that a large one is compared with.
const SmallRecords = 10_000

// Report is the result; go run ./bench store --json prints it.
type Report struct {
	Store string `json:"store"` // "memory", "pebble", "postgres", "redis" or "redis-cluster"
	// Callers is the number of callers.
	Callers     int    `json:"callers"`
	ResultBytes int    `json:"result_bytes"`
	CPUs        int    `json:"cpus"`
	Go          string `json:"go"`
	// Durability is what the store promises by its settings.
	Durability *store.Durability `json:"durability,omitempty"`
	Comparison
	// BareDurability is what the settings of the other server promise, if the bare loop
	// runs on another server than the store.
	BareDurability *store.Durability `json:"bare_durability,omitempty"`
	// ClaimBytes and OutcomeBytes are the sizes of the two values that ours and
	// the bare loop write.
	ClaimBytes   int `json:"claim_bytes,omitempty"`
	OutcomeBytes int `json:"outcome_bytes,omitempty"`
	// Filled is a store with Records records, and Small one with SmallRecords.
	Filled *Filled `json:"filled,omitempty"`
	Small  *Filled `json:"small,omitempty"`
	// ScaleRatio is the median over the turns of the new calls per second at Records
	// divided by those at SmallRecords; ReplayScaleRatio is the same for replays.
	ScaleRatio       float64 `json:"scale_ratio,omitempty"`
	ReplayScaleRatio float64 `json:"replay_scale_ratio,omitempty"`
	// Memory is this process's at the end.
	Memory
}

// Filled has the measurements of a store that was filled with records first.
type Filled struct {
	Records     int     `json:"records"`
	FillSeconds float64 `json:"fill_seconds"`
	Replay      Measure `json:"replay"`
	Execute     Measure `json:"execute"`
	// Memory is this process's after the loads on this store.
	Memory
}

// bench is one run.
type bench struct {
	opts    Options
	report  Report
	place   place
	against place // of the bare loop
	callers []*caller
}

// Run measures. The report has everything that was measured, even after an error or the
// end of ctx. A failed operation is an error.
func Run(ctx context.Context, opts Options) (report *Report, err error) {
	b := &bench{opts: opts, callers: newCallers(opts.Callers)}
	b.report = Report{
		Store: opts.kindOf(), Callers: opts.Callers, ResultBytes: opts.ResultBytes,
		CPUs: runtime.GOMAXPROCS(0), Go: runtime.Version(),
	}
	if b.place, err = newPlace(&opts); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.place.close(opts.Keep)) }()
	b.against = b.place
	if opts.Against != "" {
		b.against = newRedis(opts.Against)
		defer func() { err = errors.Join(err, b.against.close(opts.Keep)) }()
	}
	b.tellKept()
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

func (b *bench) progress(format string, args ...any) { b.opts.progress(format, args...) }

// tellKept reports where the data stay.
func (b *bench) tellKept() {
	if !b.opts.Keep {
		return
	}
	if p, ok := b.place.(*pebblePlace); ok {
		b.progress("the data stay in %s", p.dir.path)
	}
	for _, p := range []place{b.place, b.against} {
		if p.space() != "" {
			b.progress("the data stay where names begin with %s", p.space())
		}
	}
}

// open makes a separate store with an engine on it.
func (b *bench) open(ctx context.Context, name string) (*target, semel.Store, error) {
	store, err := b.place.open(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	if b.report.Durability, err = durability(ctx, store); err != nil {
		return nil, nil, errors.Join(err, store.Close())
	}
	t, err := newTarget(store, b.opts.ResultBytes)
	if err != nil {
		return nil, nil, errors.Join(err, store.Close())
	}
	return t, store, nil
}

// durability is what a store promises, or nil if it can't tell.
func durability(ctx context.Context, store semel.Store) (*store.Durability, error) {
	ds := store.Extras().Durability
	if ds == nil {
		return nil, nil
	}
	d, err := ds.Durability(ctx)
	return &d, err
}

func (b *bench) local(op operation) turner { return local(b.callers, op) }

// single measures the engine alone.
func (b *bench) single(ctx context.Context) (err error) {
	t, store, err := b.open(ctx, "ours")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	b.progress("%d callers for %v", b.opts.Callers, b.opts.Duration)
	var all tally
	all.turn(ctx, b.callers, b.opts.Duration, t.execute)
	m := all.measure()
	b.report.Ours = &m
	return errors.Join(ctx.Err(), m.fault("execute"))
}

// compare makes the engine and the bare loop take turns.
func (b *bench) compare(ctx context.Context) (err error) {
	t, store, err := b.open(ctx, "ours")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	s, err := t.takeSample(ctx)
	if err != nil {
		return err
	}
	if err := b.readAgainst(ctx); err != nil {
		return err
	}
	bare, err := b.against.bare(ctx, t, s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bare.close()) }()
	data, err := s.values()
	if err != nil {
		return err
	}
	b.report.ClaimBytes, b.report.OutcomeBytes = len(data.claim), len(data.outcome)
	b.report.ComparedWith = b.against.title()
	ours, theirs, rounds := b.opts.alternate(ctx, "engine and "+b.report.ComparedWith, b.local(t.execute), b.local(bare.execute))
	return b.report.reportRounds(ctx, &ours, &theirs, rounds)
}

// readAgainst reads what the other server's settings promise, because a comparison says
// little without that.
func (b *bench) readAgainst(ctx context.Context) error {
	if b.against == b.place {
		return nil
	}
	store, err := b.against.open(ctx, "settings")
	if err != nil {
		return err
	}
	b.report.BareDurability, err = durability(ctx, store)
	return errors.Join(err, store.Close())
}
