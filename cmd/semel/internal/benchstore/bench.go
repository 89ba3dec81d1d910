// Package benchstore measures how fast the engine runs on a store: new calls,
// replays and both, from concurrent callers in one process or several, and beside it
// a bare loop that makes the same two writes without an engine.
package benchstore

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/semelhq/semel"
)

const (
	// SmallRecords is the size that a store of many records is compared with.
	SmallRecords = 10_000
	// replayRecords is how many records are known where nobody says how many.
	replayRecords = 10_000
)

// Report is the result; semel bench store --json prints it.
type Report struct {
	Store string `json:"store"` // "memory", "pebble", "postgres", "redis" or "redis-cluster"
	Load  Load   `json:"load"`
	// Callers is how many there are in each of Nodes.
	Callers     int    `json:"callers"`
	Nodes       int    `json:"nodes"`
	ResultBytes int    `json:"result_bytes"`
	CPUs        int    `json:"cpus"`
	Go          string `json:"go"`
	// Durability is what the store promises by its settings.
	Durability *semel.Durability `json:"durability,omitempty"`
	// ComparedWith says what Bare is, and BareDurability what its settings
	// promise where it is on another server than the store.
	ComparedWith   string            `json:"compared_with,omitempty"`
	BareDurability *semel.Durability `json:"bare_durability,omitempty"`
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
	// Evidence is what the evidence log took. Then Bare is the engine on the same
	// kind of store without evidence.
	Evidence *EvidenceReport `json:"evidence,omitempty"`
	// Filled is a store that had Records before, and Small one of SmallRecords.
	Filled *Filled `json:"filled,omitempty"`
	Small  *Filled `json:"small,omitempty"`
	// ScaleRatio is the median over the turns of the operations per second of
	// new calls at Records divided by those at SmallRecords; ReplayScaleRatio
	// the same for replays.
	ScaleRatio       float64 `json:"scale_ratio,omitempty"`
	ReplayScaleRatio float64 `json:"replay_scale_ratio,omitempty"`
	// Memory is that of this process at the end, or of all nodes together.
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
	place   place
	against place // of the bare loop
	nodes   *nodes
	callers []*caller
}

// Run measures. What it found until an error, or until ctx ended, is in the
// report. An operation that failed is an error.
func Run(ctx context.Context, opts Options) (report *Report, err error) {
	opts.Nodes = max(opts.Nodes, 1)
	b := &bench{opts: opts, callers: newCallers(opts.Callers)}
	b.report = Report{
		Store: opts.kindOf(), Load: opts.Load, Callers: opts.Callers, Nodes: opts.Nodes, ResultBytes: opts.ResultBytes,
		CPUs: runtime.GOMAXPROCS(0), Go: runtime.Version(),
	}
	if b.place, err = newPlace(&opts, ""); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.place.close(opts.Keep)) }()
	b.against = b.place
	if opts.Against != "" {
		b.against = newRedis(opts.Against, "")
		defer func() { err = errors.Join(err, b.against.close(opts.Keep)) }()
	}
	b.tellKept()
	if opts.Records > 0 {
		if err := b.filled(ctx); err != nil {
			return &b.report, err
		}
	}
	switch {
	case opts.Evidence:
		err = b.withEvidence(ctx)
	case opts.Compare:
		err = b.compare(ctx)
	case opts.Records == 0:
		err = b.single(ctx)
	}
	if b.nodes == nil {
		b.report.Memory = readMemory()
	}
	return &b.report, err
}

func (b *bench) progress(format string, args ...any) {
	if b.opts.Progress != nil {
		b.opts.Progress(format, args...)
	}
}

// tellKept says where the data stay.
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

// open makes a store of its own with an engine on it.
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

// durability is what a store promises, or nil where it can't tell.
func durability(ctx context.Context, store semel.Store) (*semel.Durability, error) {
	ds, ok := store.(semel.DurabilityStore)
	if !ok {
		return nil, nil
	}
	d, err := ds.Durability(ctx)
	return &d, err
}

func (b *bench) local(op operation) turner { return local(b.callers, op) }

// startNodes starts the other processes, if there are to be several, and returns
// what ends them.
func (b *bench) startNodes(ctx context.Context, records int) (end func() error, err error) {
	if b.opts.Nodes == 1 {
		return func() error { return nil }, nil
	}
	b.nodes, err = startNodes(ctx, b.opts.Nodes, b.opts.Command, assignment{
		URL: b.opts.URL, Space: b.place.space(), Callers: b.opts.Callers, ResultBytes: b.opts.ResultBytes, Records: records, Compare: b.opts.Compare,
	})
	if err != nil {
		return nil, err
	}
	return func() error {
		b.report.Memory = b.nodes.memory()
		return b.nodes.close()
	}, nil
}

// turner is a load in this process or in the others.
func (b *bench) turner(l Load, op operation) turner {
	if b.nodes != nil {
		return b.nodes.turner(l)
	}
	return b.local(op)
}

// single measures one load.
func (b *bench) single(ctx context.Context) (err error) {
	t, store, err := b.open(ctx, "ours")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if b.opts.Load == Replay {
		if _, err := b.fill(ctx, t, store, replayRecords); err != nil {
			return err
		}
	}
	end, err := b.startNodes(ctx, t.records)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	b.progress("%s: %s for %v", b.opts.Load, b.crowd(), b.opts.Duration)
	var all tally
	b.turner(b.opts.Load, t.operation(b.opts.Load))(ctx, &all, b.opts.Duration)
	m := all.measure()
	b.report.Ours = &m
	return errors.Join(ctx.Err(), m.fault(string(b.opts.Load)))
}

// crowd is who works.
func (b *bench) crowd() string {
	if b.opts.Nodes == 1 {
		return fmt.Sprintf("%d callers", b.opts.Callers)
	}
	return fmt.Sprintf("%d callers in each of %d processes", b.opts.Callers, b.opts.Nodes)
}

// compare lets the engine and the bare loop take turns.
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
	end, err := b.startNodes(ctx, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	ours, theirs, rounds := b.alternate(ctx, "engine and "+b.report.ComparedWith, b.turner(Execute, t.execute), b.turner(bareLoad, bare.execute))
	return b.reportRounds(ctx, &ours, &theirs, rounds)
}

// reportRounds tells what came of turns.
func (b *bench) reportRounds(ctx context.Context, ours, theirs *tally, rounds []pair) error {
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

// readAgainst finds out what the other server's settings promise: a comparison says
// little without them.
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
