// Package worth shows in benchmarks what a constant is worth.
package worth

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// turn is short, so that what else the machine does falls on both sides, and longer than
// most single steps.
const turn = 200 * time.Millisecond

// Show has callers repeat a step with the constant and without it, as it is or another one,
// by turns in the order ABBA. It gives each step of a side another number, from one on. It
// reports how many steps per second each side takes, and the median of with/without over the
// rounds, of which b.N says how many there are.
func Show(b *testing.B, callers int, with, without func(n int64)) {
	b.Helper()
	sides := [2]side{{step: with}, {step: without}}
	var ratios []float64
	for range b.N {
		var steps [2]float64
		for _, i := range []int{0, 1, 1, 0} {
			steps[i] += sides[i].run(callers)
		}
		ratios = append(ratios, steps[0]/steps[1])
	}
	b.ReportMetric(sides[0].perSecond(), "with/s")
	b.ReportMetric(sides[1].perSecond(), "without/s")
	b.ReportMetric(Median(ratios), "worth")
}

// Median returns the median of a list that isn't empty, and sorts it.
func Median(list []float64) float64 {
	slices.Sort(list)
	n := len(list)
	return (list[(n-1)/2] + list[n/2]) / 2
}

type side struct {
	step func(n int64)
	n    atomic.Int64
	took time.Duration
}

// run takes a turn and returns its steps per second.
func (s *side) run(callers int) float64 {
	before, start := s.n.Load(), time.Now()
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for time.Since(start) < turn {
				s.step(s.n.Add(1))
			}
		})
	}
	all.Wait()
	took := time.Since(start)
	s.took += took
	return float64(s.n.Load()-before) / took.Seconds()
}

func (s *side) perSecond() float64 { return float64(s.n.Load()) / s.took.Seconds() }
