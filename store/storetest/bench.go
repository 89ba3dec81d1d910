package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/thorough"
	"github.com/semelhq/semel/internal/rig/turns"
)

// Bench measures the engine on a store, by the same code for every store:
//
//   - begin and complete: a new key each time, with a result of 1 KiB;
//   - replay: duplicates of one completed key;
//   - contention: 50 deliveries of each key, of which one executes.
//
// Each runs with one caller and with 64 per processor, which shows the gain from group commit.
// open makes a new, empty store and closes it by b.Cleanup.
func Bench(b *testing.B, open func(b *testing.B) semel.Store) {
	loads := []struct {
		name string
		// step makes the n-th call of the benchmark.
		step func(ctx context.Context, e *semel.Engine, n int64) error
	}{
		{"begin and complete", benchExecute},
		{"replay", benchReplay},
		{"contention", benchContention},
	}
	for _, load := range loads {
		for _, callers := range []int{1, 64} {
			name := load.name + "/1 caller"
			if callers > 1 {
				name = load.name + "/" + strconv.Itoa(callers) + " callers per processor"
			}
			b.Run(name, func(b *testing.B) {
				e, err := semel.New(open(b), &semel.Options{Operations: []semel.Operation{opHold}})
				if err != nil {
					b.Fatal(err)
				}
				b.Cleanup(func() { _ = e.Close(context.WithoutCancel(b.Context())) })
				if err := benchExecute(b.Context(), e, 0); err != nil {
					b.Fatal(err)
				}
				b.ReportAllocs()
				var n atomic.Int64
				if callers == 1 {
					for b.Loop() {
						if err := load.step(b.Context(), e, n.Add(1)); err != nil {
							b.Fatal(err)
						}
					}
					return
				}
				b.SetParallelism(callers)
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						if err := load.step(b.Context(), e, n.Add(1)); err != nil {
							b.Error(err)
							return
						}
					}
				})
			})
		}
	}
}

var benchResult = semel.Result{Data: bytes.Repeat([]byte("r"), 1024)}

func benchExecute(ctx context.Context, e *semel.Engine, n int64) error {
	ans, err := e.Begin(ctx, call(opHold, "key-"+strconv.FormatInt(n, 10)))
	if err != nil {
		return err
	}
	if ans.Decision != semel.Execute {
		return errors.New("a new key got " + string(ans.Decision))
	}
	return ans.Attempt.Complete(ctx, benchResult)
}

func benchReplay(ctx context.Context, e *semel.Engine, _ int64) error {
	ans, err := e.Begin(ctx, call(opHold, "key-0"))
	if err != nil {
		return err
	}
	if ans.Decision != semel.Replay || len(ans.Record.Result.Data) != len(benchResult.Data) {
		return errors.New("a duplicate got " + string(ans.Decision))
	}
	return nil
}

func benchContention(ctx context.Context, e *semel.Engine, n int64) error {
	ans, err := e.Begin(ctx, call(opHold, "contended-"+strconv.FormatInt(n/50, 10)))
	if err != nil {
		return err
	}
	switch ans.Decision {
	case semel.Execute:
		return ans.Attempt.Complete(ctx, benchResult)
	case semel.Replay, semel.InFlight:
		return nil
	}
	return errors.New("a contended key got " + string(ans.Decision))
}

// Stall is something that stalls between a store and its data: a connection, or one of
// several servers.
type Stall struct {
	// Begin makes it stall, until you call end.
	Begin func() (end func())
	// Needs reports whether calls of an identity need the stalled part. Optional, if nobody
	// knows in advance.
	Needs func(id semel.ID) bool
}

// stallCallers is how many callers run concurrently, and stallStuck how many of them use the
// stalled part, if the store can tell.
const (
	stallCallers = 64
	stallStuck   = 4
)

// call makes the n-th call of a caller.
func (s *Stall) call(caller, n int) semel.Call {
	for i := 0; ; i++ {
		c := call(opHold, fmt.Sprint(caller, "-", n, "-", i))
		if s.Needs == nil || s.Needs(c.ID(opHold.Share)) == (caller < stallStuck) {
			return c
		}
	}
}

// BenchStall measures how callers notice a stall of something that they don't need: the latency
// of 99.9 % of the calls, each a begin and a complete, before the stall and during it. Calls
// that fail or take longer than half the stall did need it, and are only counted: they end
// then, so that their callers continue. A stall takes 1 second, or 10 in a thorough run.
func BenchStall(b *testing.B, st semel.Store, stall Stall) {
	length := time.Second
	if thorough.Run() {
		length = 10 * time.Second
	}
	e, err := semel.New(st, &semel.Options{StoreTimeout: length / 2, Operations: []semel.Operation{opHold}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = e.Close(context.WithoutCancel(b.Context())) })
	load := stallLoad{stall: stall, engine: e, length: length, next: make([]int, stallCallers)}
	load.run(b) // makes connections, and prepares statements
	var more, before []float64
	stuck, calls := 0, 0
	for b.Loop() {
		healthy, _ := load.run(b)
		end := stall.Begin()
		during, needed := load.run(b)
		end()
		if len(healthy) == 0 || len(during) == 0 {
			b.Fatal("no calls")
		}
		was := milliseconds(healthy[len(healthy)*999/1000])
		before = append(before, was)
		more = append(more, milliseconds(during[len(during)*999/1000])-was)
		stuck, calls = stuck+needed, calls+len(during)
	}
	b.ReportMetric(turns.Median(before), "p99.9-ms")
	b.ReportMetric(turns.Median(more), "p99.9-more-ms")
	b.ReportMetric(float64(stuck)/float64(b.N), "stuck")
	b.ReportMetric(float64(calls)/float64(b.N), "calls")
}

// stallLoad runs new calls by many concurrent callers.
type stallLoad struct {
	stall  Stall
	engine *semel.Engine
	length time.Duration
	next   []int // the next call of each caller
}

// run returns how long the calls took that begin within the length, the quickest first, and how
// many took half of it or failed.
func (l *stallLoad) run(b *testing.B) (quick []time.Duration, slow int) {
	var mu sync.Mutex
	var all sync.WaitGroup
	over := time.Now().Add(l.length)
	for caller := range l.next {
		all.Go(func() {
			var mine []time.Duration
			for time.Now().Before(over) {
				mine = append(mine, l.one(b, caller))
			}
			mu.Lock()
			defer mu.Unlock()
			for _, d := range mine {
				if d >= l.length/2 {
					slow++
				} else {
					quick = append(quick, d)
				}
			}
		})
	}
	all.Wait()
	slices.Sort(quick)
	return quick, slow
}

// one makes the next call of a caller. A failed one counts as slow.
func (l *stallLoad) one(b *testing.B, caller int) time.Duration {
	c := l.stall.call(caller, l.next[caller])
	l.next[caller]++
	start := time.Now()
	ans, err := l.engine.Begin(b.Context(), c)
	if err == nil && ans.Decision == semel.Execute {
		err = ans.Attempt.Complete(b.Context(), benchResult)
	}
	took := time.Since(start)
	if err != nil {
		took = max(took, l.length/2)
	}
	return took
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
