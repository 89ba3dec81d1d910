package benchstore

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/semelhq/semel"
)

// fillers is how many write at the same time: they share the syncs.
const fillers = 1024

// fill writes n completed records and returns how long that took.
func (b *bench) fill(ctx context.Context, t *target, store semel.Store, n int) (time.Duration, error) {
	s, err := t.takeSample(ctx)
	if err != nil {
		return 0, err
	}
	now, err := store.Now(ctx)
	if err != nil {
		return 0, err
	}
	start := time.Now()
	var next, done atomic.Int64
	stop := b.watch(&done, n)
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
				_, applied, err := store.Apply(ctx, semel.Write{Record: s.record(i, now)})
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
	t.records = n
	return time.Since(start), context.Cause(ctx)
}

// watch tells of the progress of a fill every five seconds.
func (b *bench) watch(done *atomic.Int64, n int) (stop func()) {
	ended := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(5 * time.Second)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				d := done.Load()
				b.progress("filling: %d of %d records, %d %%", d, n, d*100/int64(n))
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

// filled measures replays and new calls on a store that holds many records, and,
// to compare, beside one that holds few.
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
	x, y, rounds := b.alternate(ctx, "replay "+sizes, b.local(big.target.replay), b.local(small.target.replay))
	again := x.measure()
	small.Replay = y.measure()
	b.report.ReplayScaleRatio = median(rounds)
	x, y, rounds = b.alternate(ctx, "execute "+sizes, b.local(big.target.execute), b.local(small.target.execute))
	once := x.measure()
	small.Execute = y.measure()
	b.report.ScaleRatio = median(rounds)
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
	if err := b.settle(ctx, store); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return &filledStore{Filled: Filled{Records: n, FillSeconds: took.Seconds()}, target: t, store: store}, nil
}

// maxSettle bounds the wait for what a fill leaves to be done.
const maxSettle = 2 * time.Minute

// settle waits until the store is done with what the fill has left behind, so
// that it is not taken for a cost of the calls that are measured.
func (b *bench) settle(ctx context.Context, store semel.Store) error {
	s, ok := store.(interface{ Settle(context.Context) error })
	if !ok {
		return nil
	}
	b.progress("waiting until the store has put the records in order")
	waiting, cancel := context.WithTimeout(ctx, maxSettle)
	defer cancel()
	if err := s.Settle(waiting); err != nil && waiting.Err() == nil {
		return err
	}
	return ctx.Err()
}

// replayers is how many replay at the same time where latency is measured: more
// would measure how long they wait for a processor.
var replayers = 2 * runtime.NumCPU()

// measureFilled measures one filled store alone, which also tells what memory it
// takes.
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
