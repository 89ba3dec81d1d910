// Package turns measures loads in benchmarks: how many operations concurrent callers make,
// how long each takes, and how that compares with another load that takes turns with it.
package turns

import (
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	random "math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// length is longer than most single steps, and short, so that what else the machine does falls
// on all sides.
var length = flag.Duration("turns.length", 200*time.Millisecond, "how long each side of a comparison is measured in a round")

// Long reports whether turns are long enough for latencies to mean something. Bounds on
// them are checked only then, because a benchmark that is run once beside others, to see
// that it works, would fail on a busy machine.
func Long() bool { return *length >= time.Second }

// Load is what callers repeat at the same time.
type Load struct {
	// Name begins the names of its metrics.
	Name string
	// Callers is how many there are.
	Callers int
	// Step makes one operation. An error ends the benchmark.
	Step func(ctx context.Context, c *Caller) error
}

// Caller is one of the callers of a load. It is for one goroutine.
type Caller struct {
	// Number counts the callers of a load from zero.
	Number int
	// Rand always begins with the same seed.
	Rand   *random.Rand
	prefix string
	keys   int
	took   []time.Duration
}

// NewCaller makes a caller with its own keys. You choose its number.
func NewCaller(number int) *Caller {
	return &Caller{Number: number, prefix: fmt.Sprintf("%s-%d-", rand.Text()[:8], number), Rand: random.New(random.NewPCG(uint64(number), 1))}
}

// Key returns a key that no other call has had.
func (c *Caller) Key() string {
	c.keys++
	return c.prefix + strconv.Itoa(c.keys)
}

// Took says how long an operation has taken, instead of the time of its step. A step that
// makes several at once calls it for each.
func (c *Caller) Took(d time.Duration) { c.took = append(c.took, d) }

// Result is the measurement of a load.
type Result struct {
	// PerSecond is how many operations there were each second.
	PerSecond float64
	// CPU is the processor time of the process for each. Other processes move it less than
	// PerSecond.
	CPU time.Duration
	// P50, P99 and Max are how long they took.
	P50, P99, Max time.Duration
	// Allocs is how many allocations of the process there were for each.
	Allocs float64
}

// Compare measures loads, which take turns in the order ABBA, so that changes on the
// machine affect all alike. There are as many rounds as -benchtime says. It reports the
// measurements of each load and, of two, the medians of first/second over the rounds: "ratio"
// of the operations per second, and "cpu-ratio" of those per second of processor time. First
// each takes a short turn, which doesn't count.
func Compare(b *testing.B, loads ...Load) []Result {
	b.Helper()
	sides := make([]*side, len(loads))
	for i, l := range loads {
		sides[i] = newSide(l)
		sides[i].turn(b, *length/4)
		sides[i].forget()
	}
	var ratios, cpuRatios []float64
	for round := 0; b.Loop(); round++ {
		rates, costs := make([]float64, len(sides)), make([]float64, len(sides))
		for _, i := range order(round, len(sides)) {
			rates[i], costs[i] = sides[i].turn(b, *length)
		}
		if len(rates) == 2 {
			ratios = append(ratios, rates[0]/rates[1])
			cpuRatios = append(cpuRatios, costs[1]/costs[0])
		}
	}
	results := make([]Result, len(sides))
	for i, s := range sides {
		results[i] = s.report(b)
	}
	if ratios != nil {
		b.ReportMetric(Median(ratios), "ratio")
		if ratio := Median(cpuRatios); ratio > 0 { // it is NaN where nobody tells
			b.ReportMetric(ratio, "cpu-ratio")
		}
	}
	b.ReportMetric(0, "ns/op") // of a round, which says nothing
	return results
}

// order is the order in which so many sides take their turns: every other round backwards.
func order(round, sides int) []int {
	all := make([]int, sides)
	for i := range all {
		all[i] = i
	}
	if round%2 == 1 {
		slices.Reverse(all)
	}
	return all
}

// Worth shows what a constant is worth: callers repeat a step with it and without it, as it
// is or another one. It gives each step of a side another number, from one on. The ratio is
// that of with/without; see [Compare].
func Worth(b *testing.B, callers int, with, without func(n int64)) {
	b.Helper()
	load := func(name string, step func(n int64)) Load {
		var n atomic.Int64
		return Load{name, callers, func(context.Context, *Caller) error {
			step(n.Add(1))
			return nil
		}}
	}
	Compare(b, load("with", with), load("without", without))
}

// Median returns the median of a list that isn't empty, and sorts it.
func Median(list []float64) float64 {
	slices.Sort(list)
	n := len(list)
	return (list[(n-1)/2] + list[n/2]) / 2
}

// side is a load and its measurements.
type side struct {
	Load
	callers []*Caller
	elapsed time.Duration
	cpu     time.Duration
	mallocs uint64
}

func newSide(l Load) *side {
	s := &side{Load: l}
	for i := range l.Callers {
		s.callers = append(s.callers, NewCaller(i))
	}
	return s
}

func (s *side) forget() {
	s.elapsed, s.cpu, s.mallocs = 0, 0, 0
	for _, c := range s.callers {
		c.took = nil
	}
}

// turn makes the callers repeat their step for a while, and at least once. It returns the
// operations per second, and the seconds of processor time for each.
func (s *side) turn(b *testing.B, d time.Duration) (rate, cost float64) {
	b.Helper()
	runtime.GC() // it must not pay for earlier garbage
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var stop atomic.Bool
	var operations atomic.Int64
	var failed atomic.Pointer[error]
	var all sync.WaitGroup
	used, start := ProcessorTime(), time.Now()
	timer := time.AfterFunc(d, func() { stop.Store(true) })
	defer timer.Stop()
	for _, c := range s.callers {
		all.Go(func() {
			had := len(c.took)
			for first := true; first || !stop.Load(); first = false {
				known, began := len(c.took), time.Now()
				if err := s.Step(b.Context(), c); err != nil {
					failed.Store(&err)
					stop.Store(true)
					return
				}
				if len(c.took) == known {
					c.Took(time.Since(began))
				}
			}
			operations.Add(int64(len(c.took) - had))
		})
	}
	all.Wait()
	took := time.Since(start)
	used = ProcessorTime() - used
	runtime.ReadMemStats(&after)
	if err := failed.Load(); err != nil {
		b.Fatalf("%s: %v", s.Name, *err)
	}
	s.elapsed += took
	s.cpu += used
	s.mallocs += after.Mallocs - before.Mallocs
	n := float64(operations.Load())
	return n / took.Seconds(), used.Seconds() / n
}

func (s *side) report(b *testing.B) Result {
	var took []time.Duration
	for _, c := range s.callers {
		took = append(took, c.took...)
	}
	slices.Sort(took)
	n := len(took)
	r := Result{
		PerSecond: float64(n) / s.elapsed.Seconds(), CPU: s.cpu / time.Duration(n), Allocs: float64(s.mallocs) / float64(n),
		P50: took[n/2], P99: took[n*99/100], Max: took[n-1],
	}
	b.ReportMetric(r.PerSecond, s.Name+"/s")
	b.ReportMetric(r.Allocs, s.Name+"-allocs")
	for name, d := range map[string]time.Duration{"cpu": r.CPU, "p50": r.P50, "p99": r.P99, "max": r.Max} {
		b.ReportMetric(float64(d)/float64(time.Microsecond), s.Name+"-"+name+"-µs")
	}
	return r
}
