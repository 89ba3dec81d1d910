package storetest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/thorough"
	"github.com/semelhq/semel/internal/turns"
)

// Stall is something that stalls between a store and its data: a connection, or one of
// several servers.
type Stall struct {
	// Begin makes it stall, and what it returns ends that.
	Begin func() (end func())
	// Needs tells whether calls of an identity need what stalls. Optional, if nobody
	// knows beforehand.
	Needs func(id semel.ID) bool
}

// stallCallers is how many callers there are at once, and stallStuck how many of them need
// what stalls, if that is known.
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

// BenchStall measures what callers notice of a stall of something that they don't need:
// the latency of 99.9 % of the calls, each a begin and a complete, before the stall and
// during it. Calls that fail or take longer than half the stall needed it, and are only
// counted: they are given up then, so that their callers go on.
// A stall takes 1 second, or 10 in a thorough run.
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
	next := make([]int, stallCallers)
	load := func() (quick []time.Duration, slow int) {
		var mu sync.Mutex
		var all sync.WaitGroup
		over := time.Now().Add(length)
		for caller := range stallCallers {
			all.Go(func() {
				var mine []time.Duration
				for time.Now().Before(over) {
					c := stall.call(caller, next[caller])
					next[caller]++
					start := time.Now()
					ans, err := e.Begin(b.Context(), c)
					if err == nil && ans.Decision == semel.Execute {
						err = ans.Attempt.Complete(b.Context(), benchResult)
					}
					took := time.Since(start)
					if err != nil {
						took = max(took, length/2)
					}
					mine = append(mine, took)
				}
				mu.Lock()
				defer mu.Unlock()
				for _, d := range mine {
					if d >= length/2 {
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
	load() // connections are made, and statements prepared
	var more, before []float64
	stuck, calls := 0, 0
	for b.Loop() {
		healthy, _ := load()
		end := stall.Begin()
		during, needed := load()
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

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
