package benchinbox

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/bench/internal/benchstore"
	"github.com/semelhq/semel/bench/internal/loopback"
	"github.com/semelhq/semel/protocol/activitypub"
)

// Run measures. Senders, inbox and engine run in this process. A delivery that isn't
// answered with 202 is an error, and so are duplicates that are answered too late, but the
// report has the measurements anyway.
func Run(ctx context.Context, opts Options) (report *Report, err error) {
	ground, err := benchstore.OpenGround(ctx, opts.Store)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, ground.Close()) }()
	report = &Report{
		Store: ground.Kind, Durability: ground.Durability, Records: opts.Records, Senders: opts.Senders,
		BodyBytes: len(appendActivity(nil, appendKnown(nil, 0), opts.BodyBytes)), BudgetMs: opts.Budget.Milliseconds(),
		CPUs: runtime.GOMAXPROCS(0), Go: runtime.Version(),
	}
	if report.FillSeconds, err = fill(ctx, ground, &opts); err != nil {
		return nil, err
	}
	engine, err := semel.New(ground.Store, logging())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, engine.Close(context.Background())) }()
	inbox, err := newInbox(engine, opts.Budget)
	if err != nil {
		return nil, err
	}
	return report, report.measure(ctx, inbox, &opts)
}

// fill makes the store look as if activities had been taken and handled.
func fill(ctx context.Context, ground *benchstore.Ground, opts *Options) (seconds float64, err error) {
	opts.Store.Progress("filling a store with %d activities", opts.Records)
	drafts := newDrafts(func(b []byte, i int) []byte { return appendActivity(b, appendKnown(nil, i), opts.BodyBytes) })
	defer func() { err = errors.Join(err, drafts.close()) }()
	took, err := ground.Fill(ctx, opts.Records, drafts.record)
	if err != nil || opts.Rest == 0 {
		return took.Seconds(), err
	}
	opts.Store.Progress("leaving the store alone for %v", opts.Rest)
	select {
	case <-ctx.Done():
		err = ctx.Err()
	case <-time.After(opts.Rest):
	}
	return took.Seconds(), err
}

// measure runs the loads, one after the other.
func (r *Report) measure(ctx context.Context, inbox *activitypub.Inbox, opts *Options) (err error) {
	// No load must pay for the garbage of what was before. Here that may take longer than
	// the server waits for a request on a new connection.
	runtime.GC()
	site, err := loopback.Serve(inbox, true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, site.Close()) }()
	senders, err := newSenders(site.Addr(), opts)
	defer func() {
		for _, s := range senders {
			s.conn.Close()
		}
	}()
	if err != nil {
		return err
	}
	begin := func(load string) {
		opts.Store.Progress("%s: %d senders for %v", load, opts.Senders, opts.Duration)
		runtime.GC()
	}
	opts.Store.Progress("duplicates: %d senders for %v", opts.Senders, opts.Duration)
	again, took := repeat(ctx, senders, opts.Duration, duplicate, func(s *sender, b []byte) []byte {
		return appendKnown(b, s.rng.IntN(opts.Records))
	})
	r.Duplicates = again.side(took)
	begin("first deliveries")
	first, took := repeat(ctx, senders, opts.Duration, taken, (*sender).appendFresh)
	r.First = first.side(took)
	begin("flood")
	var f flood
	f.run(ctx, senders, opts.Duration)
	r.Flood = Flood{
		Activities: f.ids, Copies: min(copies, opts.Senders),
		Duplicates: f.duplicates.side(f.took), First: f.taken.side(f.took),
	}
	return errors.Join(ctx.Err(), r.fault())
}

func (r *Report) fault() error {
	return errors.Join(
		r.Duplicates.fault("duplicates"), r.First.fault("first deliveries"),
		r.Flood.Duplicates.fault("flood, duplicates"), r.Flood.First.fault("flood, first deliveries"),
		r.Duplicates.late("duplicates"), r.Flood.Duplicates.late("flood, duplicates"),
	)
}

// fault is nil if every delivery got 202 and the right message.
func (s *Side) fault(name string) error {
	refused := 0
	for _, n := range s.Statuses {
		refused += n
	}
	switch {
	case s.Errors > 0:
		return fmt.Errorf("%s: %d of %d deliveries failed, the first with: %s", name, s.Errors, s.Deliveries+s.Errors, s.FirstError)
	case refused > 0:
		return fmt.Errorf("%s: %d of %d deliveries were not answered with 202", name, refused, s.Deliveries)
	}
	return nil
}

// late is nil if duplicates were told in time (VUL-03-002).
func (s *Side) late(name string) error {
	if p99 := time.Duration(s.Latency.P99 * 1e3); p99 > limit {
		return fmt.Errorf("%s: p99 is %v, above %v", name, p99.Round(time.Millisecond), limit)
	}
	return nil
}
