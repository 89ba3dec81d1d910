package benchstore

import (
	"context"
	"slices"
	"time"
)

// pair is one round, in operations per second.
type pair struct{ first, second float64 }

// alternate lets two operations take turns, in the order ABBA, so that what
// changes on the machine meanwhile hits both alike. A short turn of each before
// is not counted.
func (b *bench) alternate(ctx context.Context, what string, first, second turner) (x, y tally, rounds []pair) {
	turn := b.opts.Duration / time.Duration(b.opts.Rounds)
	var warm tally
	first(ctx, &warm, turn/4)
	second(ctx, &warm, turn/4)
	for i := range b.opts.Rounds {
		if ctx.Err() != nil {
			break
		}
		b.progress("%s: round %d of %d, %v each", what, i+1, b.opts.Rounds, turn)
		var p pair
		if i%2 == 0 {
			p.first = first(ctx, &x, turn)
			p.second = second(ctx, &y, turn)
		} else {
			p.second = second(ctx, &y, turn)
			p.first = first(ctx, &x, turn)
		}
		rounds = append(rounds, p)
	}
	return x, y, rounds
}

// median of the ratios; zero if there is none.
func median(rounds []pair) float64 {
	var ratios []float64
	for _, p := range rounds {
		if p.second > 0 {
			ratios = append(ratios, p.first/p.second)
		}
	}
	slices.Sort(ratios)
	n := len(ratios)
	if n == 0 {
		return 0
	}
	return (ratios[(n-1)/2] + ratios[n/2]) / 2
}
