package benchstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/bench/internal/turns"
	"github.com/semelhq/semel/store"
)

// fillers is how many goroutines write at the same time; they share the syncs.
const fillers = 1024

// fill writes n completed records of the sample's kind and returns how long that took.
func (b *bench) fill(ctx context.Context, t *target, st semel.Store, n int) (time.Duration, error) {
	s, err := t.takeSample(ctx)
	if err != nil {
		return 0, err
	}
	now, err := st.Now(ctx)
	if err != nil {
		return 0, err
	}
	t.records = n
	return b.opts.fill(ctx, st, n, func(_ context.Context, i int) (semel.Record, error) { return s.record(i, now), nil })
}

// fill writes n records and returns how long that took.
func (o *Options) fill(ctx context.Context, st semel.Store, n int, record func(ctx context.Context, i int) (semel.Record, error)) (time.Duration, error) {
	start := time.Now()
	var next, done atomic.Int64
	stop := o.watch(&done, n)
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for range min(fillers, n) {
		wg.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				rec, err := record(ctx, i)
				applied := false
				if err == nil {
					_, applied, err = st.Apply(ctx, store.Write{Record: new(rec)})
				}
				if err == nil && !applied {
					err = errors.New("it exists already")
				}
				if err != nil {
					cancel(fmt.Errorf("fill record %d: %w", i, err))
					return
				}
				done.Add(1)
			}
		})
	}
	wg.Wait()
	return time.Since(start), context.Cause(ctx)
}

// watch reports the progress of a fill every five seconds.
func (o *Options) watch(done *atomic.Int64, n int) (stop func()) {
	ended := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(5 * time.Second)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				d := done.Load()
				o.progress("filling: %d of %d records, %d %%", d, n, d*100/int64(n))
			case <-ended:
				return
			}
		}
	})
	return func() {
		close(ended)
		wg.Wait()
	}
}

// filled measures replays and new calls on a store with many records and, to compare, on
// one with few.
func (b *bench) filled(ctx context.Context) (err error) {
	big, err := b.openFilled(ctx, "filled", b.opts.Records)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, big.store.Close()) }()
	b.report.Filled = &big.Filled
	if err := b.measureFilled(ctx, big); err != nil || !b.opts.Compare {
		return err
	}
	small, err := b.openFilled(ctx, "small", SmallRecords)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, small.store.Close()) }()
	b.report.Small = &small.Filled
	sizes := fmt.Sprintf("at %d and at %d records", b.opts.Records, SmallRecords)
	x, y, rounds := b.opts.alternate(ctx, "replay "+sizes, b.local(big.target.replay), b.local(small.target.replay))
	again := x.measure()
	small.Replay = y.measure()
	b.report.ReplayScaleRatio = turns.Median(rounds)
	x, y, rounds = b.opts.alternate(ctx, "execute "+sizes, b.local(big.target.execute), b.local(small.target.execute))
	once := x.measure()
	small.Execute = y.measure()
	b.report.ScaleRatio = turns.Median(rounds)
	small.Memory = readMemory()
	return errors.Join(ctx.Err(), again.fault("replay"), once.fault("execute"), small.fault())
}

// filledStore is a store with records in it.
type filledStore struct {
	Filled
	target *target
	store  semel.Store
}

func (f *filledStore) fault() error {
	return errors.Join(f.Replay.fault("replay"), f.Execute.fault("execute"))
}

func (b *bench) openFilled(ctx context.Context, name string, n int) (*filledStore, error) {
	t, store, err := b.open(ctx, name)
	if err != nil {
		return nil, err
	}
	b.progress("filling a store with %d records", n)
	took, err := b.fill(ctx, t, store, n)
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	if err := b.opts.settle(ctx, b.place, name); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return &filledStore{Filled: Filled{Records: n, FillSeconds: took.Seconds()}, target: t, store: store}, nil
}

// What settle waits for: no file has changed for settleQuiet, and it waits no longer than
// maxSettle.
const (
	settleQuiet = time.Second
	maxSettle   = 2 * time.Minute
)

// settle waits until the store is done with what the fill has left behind, so that it is
// not taken for a cost of the calls that are measured: the embedded store merges its files.
func (o *Options) settle(ctx context.Context, at place, name string) error {
	p, ok := at.(*pebblePlace)
	if !ok {
		return nil
	}
	o.progress("waiting until the store has put the records in order")
	before, quiet := "", time.Now()
	for start := time.Now(); time.Since(quiet) < settleQuiet && time.Since(start) < maxSettle; {
		files, err := filesOf(p.dir.sub(name))
		if err != nil {
			return err
		}
		if files != before {
			before, quiet = files, time.Now()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(settleQuiet / 10):
		}
	}
	return nil
}

// filesOf says which files there are in a directory, and how large they are.
func filesOf(dir string) (string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	var files strings.Builder
	for _, e := range entries {
		if info, err := e.Info(); err == nil { // or it was removed meanwhile
			fmt.Fprintln(&files, e.Name(), info.Size())
		}
	}
	return files.String(), nil
}

// replayers is how many callers replay when latency is measured: more would measure how
// long they wait for a processor.
var replayers = 2 * runtime.NumCPU()

// measureFilled measures one filled store alone, and its memory.
func (b *bench) measureFilled(ctx context.Context, f *filledStore) error {
	var replay, execute tally
	few := b.callers[:min(replayers, len(b.callers))]
	b.progress("replay at %d records: %d callers for %v", f.Records, len(few), b.opts.Duration)
	replay.turn(ctx, few, b.opts.Duration, f.target.replay)
	b.progress("execute at %d records: %d callers for %v", f.Records, b.opts.Callers, b.opts.Duration)
	execute.turn(ctx, b.callers, b.opts.Duration, f.target.execute)
	f.Replay, f.Execute = replay.measure(), execute.measure()
	f.Memory = readMemory()
	return errors.Join(ctx.Err(), f.fault())
}
