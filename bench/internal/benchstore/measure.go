package benchstore

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/semelhq/semel/bench/internal/histogram"
)

// Measure has the measurements of one load.
type Measure struct {
	// Operations counts the operations: a begin and its complete are one, a replay is
	// one.
	Operations   uint64            `json:"operations"`
	Seconds      float64           `json:"seconds"`
	OpsPerSecond float64           `json:"ops_per_second"`
	Latency      histogram.Latency `json:"latency"`
	// AllocsPerOp and BytesPerOp are the whole process's. They include one allocation per
	// new key for the load itself.
	AllocsPerOp float64 `json:"allocs_per_op"`
	BytesPerOp  float64 `json:"bytes_per_op"`
	// Errors counts failed operations; FirstError is one of them.
	Errors     uint64 `json:"errors"`
	FirstError string `json:"first_error,omitempty"`
}

// caller is one of the concurrent callers of a load.
type caller struct {
	number int
	rng    *rand.Rand
	serial uint64 // of the caller's next new key
	buf    []byte
}

// operation is what every caller repeats.
type operation func(ctx context.Context, c *caller) error

// tally adds up the turns of one load.
type tally struct {
	latency       histogram.Histogram
	elapsed       time.Duration
	mallocs, size uint64
	errors        uint64
	first         error
}

// turner runs one turn of a load, like [tally.turn].
type turner func(ctx context.Context, t *tally, d time.Duration) float64

// local is the turner of callers in this process.
func local(callers []*caller, op operation) turner {
	return func(ctx context.Context, t *tally, d time.Duration) float64 { return t.turn(ctx, callers, d, op) }
}

// add adds another tally of the same turns.
func (t *tally) add(o *tally) {
	t.latency.Merge(&o.latency)
	t.mallocs += o.mallocs
	t.size += o.size
	t.errors += o.errors
	if t.first == nil {
		t.first = o.first
	}
}

// turn makes the callers repeat op for a while. It adds the measurements to the tally,
// and returns the operations per second of this turn. When ctx is done it ends early.
func (t *tally) turn(ctx context.Context, callers []*caller, d time.Duration, op operation) float64 {
	// This turn must not pay for earlier garbage.
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var stop atomic.Bool
	var mu sync.Mutex
	var wg sync.WaitGroup
	var count uint64
	start := time.Now()
	timer := time.AfterFunc(d, func() { stop.Store(true) })
	defer timer.Stop()
	for _, c := range callers {
		wg.Go(func() {
			var own tally
			for last := time.Now(); !stop.Load() && ctx.Err() == nil; {
				err := op(ctx, c)
				now := time.Now()
				switch {
				case err == nil:
					own.latency.Add(now.Sub(last))
				case ctx.Err() == nil:
					own.errors++
					own.first = err
				}
				last = now
			}
			mu.Lock()
			defer mu.Unlock()
			count += own.latency.Total
			t.add(&own)
		})
	}
	wg.Wait()
	elapsed := time.Since(start)
	runtime.ReadMemStats(&after)
	t.elapsed += elapsed
	t.mallocs += after.Mallocs - before.Mallocs
	t.size += after.TotalAlloc - before.TotalAlloc
	return float64(count) / elapsed.Seconds()
}

func (t *tally) measure() Measure {
	m := Measure{
		Operations: t.latency.Total, Seconds: t.elapsed.Seconds(), Errors: t.errors,
		Latency: t.latency.Latency(),
	}
	if t.elapsed > 0 {
		m.OpsPerSecond = float64(m.Operations) / t.elapsed.Seconds()
	}
	if m.Operations > 0 {
		m.AllocsPerOp = float64(t.mallocs) / float64(m.Operations)
		m.BytesPerOp = float64(t.size) / float64(m.Operations)
	}
	if t.first != nil {
		m.FirstError = t.first.Error()
	}
	return m
}

// fault is nil if no operation of the load failed.
func (m *Measure) fault(name string) error {
	if m.Errors > 0 {
		return errors.New(name + ": " + m.FirstError)
	}
	if m.Operations == 0 {
		return errors.New(name + ": no operation was finished in the time given")
	}
	return nil
}

func newCallers(n int) []*caller {
	callers := make([]*caller, n)
	for i := range callers {
		callers[i] = &caller{number: i, rng: rand.New(rand.NewPCG(uint64(i), 1)), buf: make([]byte, 0, 64)}
	}
	return callers
}
