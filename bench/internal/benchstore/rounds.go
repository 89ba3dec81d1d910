package benchstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/semelhq/semel/bench/internal/turns"
)

// Comparison has the measurements of two loads that took turns.
type Comparison struct {
	// ComparedWith names Bare.
	ComparedWith string `json:"compared_with,omitempty"`
	// Ours is the engine under the load, on a store that was empty at first.
	Ours *Measure `json:"ours,omitempty"`
	// Bare is the other load, and Rounds has the turns of both. Ratio is the median over
	// the rounds of ours/bare in operations per second, and RatioOfTotals that of all
	// rounds together.
	Bare          *Measure `json:"bare,omitempty"`
	Rounds        []Round  `json:"rounds,omitempty"`
	Ratio         float64  `json:"ratio,omitempty"`
	RatioOfTotals float64  `json:"ratio_of_totals,omitempty"`
}

// Round is one turn of each, in operations per second.
type Round struct {
	Ours  float64 `json:"ours"`
	Bare  float64 `json:"bare"`
	Ratio float64 `json:"ratio"`
}

// alternate makes two loads take turns. It first gives each a short turn, which doesn't
// count.
func (o *Options) alternate(ctx context.Context, what string, first, second turner) (x, y tally, rounds []turns.Pair) {
	turn := o.Duration / time.Duration(o.Rounds)
	var warm tally
	first(ctx, &warm, turn/4)
	second(ctx, &warm, turn/4)
	rounds = turns.Alternate(ctx, o.Rounds,
		func(i int) { o.progress("%s: round %d of %d, %v each", what, i, o.Rounds, turn) },
		func() float64 { return first(ctx, &x, turn) },
		func() float64 { return second(ctx, &y, turn) })
	return x, y, rounds
}

// reportRounds adds the turns to the comparison.
func (c *Comparison) reportRounds(ctx context.Context, ours, theirs *tally, rounds []turns.Pair) error {
	m, n := ours.measure(), theirs.measure()
	c.Ours, c.Bare = &m, &n
	c.Ratio = turns.Median(rounds)
	if n.OpsPerSecond > 0 {
		c.RatioOfTotals = m.OpsPerSecond / n.OpsPerSecond
	}
	for _, r := range rounds {
		c.Rounds = append(c.Rounds, Round{Ours: r.First, Bare: r.Second, Ratio: r.Ratio()})
	}
	return errors.Join(ctx.Err(), m.fault("ours"), n.fault("bare"))
}

// Op is what every caller repeats; they are counted from 0.
type Op func(ctx context.Context, caller int) error

// Alternate makes two loads take turns, or measures ours alone if theirs is nil. It uses
// only the callers, duration, rounds and progress of the options.
func Alternate(ctx context.Context, opts Options, peer string, ours, theirs Op) (c Comparison, err error) {
	callers := newCallers(opts.Callers)
	load := func(op Op) turner {
		return local(callers, func(ctx context.Context, c *caller) error { return op(ctx, c.number) })
	}
	if theirs != nil {
		c.ComparedWith = peer
		x, y, rounds := opts.alternate(ctx, "Semel and "+peer, load(ours), load(theirs))
		return c, c.reportRounds(ctx, &x, &y, rounds)
	}
	opts.progress("%d callers for %v", opts.Callers, opts.Duration)
	var warm, all tally
	load(ours)(ctx, &warm, opts.Duration/4)
	load(ours)(ctx, &all, opts.Duration)
	m := all.measure()
	c.Ours = &m
	return c, errors.Join(ctx.Err(), m.fault("ours"))
}

// Do makes one call under a key and checks its answer. If replayed is set, the key has an
// outcome, and the answer must be that.
type Do func(ctx context.Context, key string, replayed bool) error

// Contest is [Alternate] for two programs that do the same. If hot is above zero, callers
// repeat that many keys, each of which has an outcome; otherwise every key is new.
func Contest(ctx context.Context, opts Options, peer string, hot int, ours, theirs Do) (Comparison, error) {
	keys := target{run: newSpace()}
	names := make([]string, hot)
	for i := range names {
		names[i] = fmt.Sprintf("%s-hot-%d", keys.run, i)
		if err := errors.Join(ours(ctx, names[i], false), theirs(ctx, names[i], false)); err != nil {
			return Comparison{ComparedWith: peer}, err
		}
	}
	callers := newCallers(opts.Callers)
	load := func(do Do) Op {
		return func(ctx context.Context, i int) error {
			c := callers[i]
			if hot > 0 {
				return do(ctx, names[c.rng.IntN(hot)], true)
			}
			return do(ctx, keys.newKey(c), false)
		}
	}
	return Alternate(ctx, opts, peer, load(ours), load(theirs))
}
