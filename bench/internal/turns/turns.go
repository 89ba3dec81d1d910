// Package turns compares two loads by letting them take turns.
package turns

import (
	"context"
	"slices"
)

// Pair is one round, in operations per second of each load.
type Pair struct{ First, Second float64 }

// Ratio is First/Second; zero if the second load did nothing.
func (p Pair) Ratio() float64 {
	if p.Second == 0 {
		return 0
	}
	return p.First / p.Second
}

// Alternate makes two loads take turns for so many rounds, in the order ABBA, so that
// changes on the machine affect both alike. It calls progress before each round, counted
// from one. When ctx is done it ends after the current round.
func Alternate(ctx context.Context, rounds int, progress func(round int), first, second func() float64) []Pair {
	var pairs []Pair
	for i := range rounds {
		if ctx.Err() != nil {
			break
		}
		progress(i + 1)
		var p Pair
		if i%2 == 0 {
			p.First = first()
			p.Second = second()
		} else {
			p.Second = second()
			p.First = first()
		}
		pairs = append(pairs, p)
	}
	return pairs
}

// Median is the median of the ratios, without rounds in which the second load did
// nothing; zero if there is none.
func Median(pairs []Pair) float64 {
	var ratios []float64
	for _, p := range pairs {
		if p.Second > 0 {
			ratios = append(ratios, p.Ratio())
		}
	}
	slices.Sort(ratios)
	n := len(ratios)
	if n == 0 {
		return 0
	}
	return (ratios[(n-1)/2] + ratios[n/2]) / 2
}
