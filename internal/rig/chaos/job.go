//go:build linux

package chaos

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/semelhq/semel/internal/rig/history"
)

// The operations of a run.
const (
	opOnce  = "work.once"  // the execution API, as it is by default
	opSteps = "work.steps" // with the ledger of effects
	opAgain = "work.again" // on_abandoned: retry
	opPay   = "pay.once"   // through the proxy
	opAsked = "pay.asked"  // with a reconciler
	opStep  = "pay.steps"  // with the upstream's effect in the ledger

	// Sequences, through the execution API and the proxy.
	opNumbers    = "work.numbers" // numbers may be missing; on_abandoned: retry
	opGapless    = "work.gapless"
	opPayNumbers = "pay.numbers"
	opPayGapless = "pay.gapless" // on_abandoned: retry

	opOwned = "pay.owned" // strangers send the keys too
)

// rules are the promises of the operations.
var rules = map[string]history.Rules{
	opOnce: {}, opSteps: {Reopens: true}, opAgain: {Repeats: true},
	opPay: {Routed: true}, opAsked: {Routed: true, Asked: true}, opStep: {Routed: true, Reopens: true},
	opNumbers: {Numbered: true, Repeats: true}, opGapless: {Numbered: true, Gapless: true},
	opPayNumbers: {Routed: true, Numbered: true}, opPayGapless: {Routed: true, Numbered: true, Gapless: true, Repeats: true},
	opOwned: {Routed: true, Shared: true},
}

// job is one delivery of a call and its worker's instructions. The answers that it gets
// decide how it continues.
type job struct {
	ID      int    `json:"id"`
	Op      string `json:"op"`
	Key     string `json:"key"`
	Number  int    `json:"number,omitempty"` // in a sequence, from 1
	Caller  string `json:"caller,omitempty"` // a stranger
	Payload int    `json:"payload"`
	// Named deliveries name their holder.
	Named bool `json:"named,omitempty"`
	Wait  int  `json:"wait,omitempty"`
	// Hangup is when the client of a call through the proxy gives up.
	Hangup time.Duration `json:"hangup,omitempty"`
	// Before and After are how long the work takes before and after its effect.
	Before time.Duration `json:"before,omitempty"`
	After  time.Duration `json:"after,omitempty"`
	// Renews says that the lease is renewed meanwhile, End how the work ends.
	Renews bool   `json:"renews,omitempty"`
	End    string `json:"end"`
	// Twice says that the end is sent again after its answer.
	Twice bool   `json:"twice,omitempty"`
	Seed  uint64 `json:"seed"` // of the choices on the way
}

// vanish is the end of work when its holder disappears.
const vanish = "vanish"

// choice is a value with its weight.
type choice[T any] struct {
	weight int
	value  T
}

// pick chooses one by its weight.
func pick[T any](rng *rand.Rand, choices ...choice[T]) T {
	sum := 0
	for _, c := range choices {
		sum += c.weight
	}
	n := rng.IntN(sum)
	for _, c := range choices {
		if n -= c.weight; n < 0 {
			return c.value
		}
	}
	panic("unreachable")
}

// span is a random time between two.
func span(rng *rand.Rand, from, to time.Duration) time.Duration {
	return from + time.Duration(rng.Int64N(int64(to-from)))
}

// work is how long something takes: nearly always a moment, sometimes longer than a
// lease.
func work(rng *rand.Rand) time.Duration {
	type between struct{ from, to time.Duration }
	b := pick(rng,
		choice[between]{75, between{0, 20 * time.Millisecond}},
		choice[between]{19, between{50 * time.Millisecond, 500 * time.Millisecond}},
		choice[between]{6, between{lease / 2, 2 * lease}},
	)
	return span(rng, b.from, b.to)
}

// chance is true with a probability in percent.
func chance(rng *rand.Rand, percent int) bool { return rng.IntN(100) < percent }

// newJob is a delivery of a call.
func newJob(rng *rand.Rand, op, key string) job {
	j := job{
		Op: op, Key: key, Payload: 1, Named: chance(rng, 75), Before: work(rng), After: work(rng), Renews: chance(rng, 90),
		Twice: chance(rng, 5), Seed: rng.Uint64(),
		End: pick(rng,
			choice[string]{84, history.Complete}, choice[string]{4, history.Reject}, choice[string]{3, history.Fail},
			choice[string]{6, history.Abort}, choice[string]{1, history.Hold}, choice[string]{2, vanish}),
	}
	if chance(rng, 20) {
		j.Wait = 1 + rng.IntN(3)
	}
	if chance(rng, 3) && op != opOwned {
		j.Payload = 2
	}
	if rules[op].Routed && chance(rng, 6) {
		j.Hangup = span(rng, 5*time.Millisecond, 300*time.Millisecond)
	}
	return j
}

// planned is a delivery with its time.
type planned struct {
	job
	at time.Duration
}

// newCall are the deliveries of a call, or of all numbers of a sequence.
func newCall(rng *rand.Rand, n int) (all []planned) {
	op := pick(rng,
		choice[string]{34, opOnce}, choice[string]{14, opSteps}, choice[string]{10, opAgain},
		choice[string]{18, opPay}, choice[string]{8, opAsked}, choice[string]{8, opStep}, choice[string]{8, opOwned},
		choice[string]{4, opNumbers}, choice[string]{4, opGapless}, choice[string]{4, opPayNumbers}, choice[string]{4, opPayGapless})
	key := fmt.Sprintf("k%d", n)
	add := func(number int, caller string, times []time.Duration) {
		for _, at := range times {
			j := newJob(rng, op, key)
			j.Number, j.Caller = number, caller
			all = append(all, planned{j, at})
		}
	}
	switch {
	case rules[op].Numbered:
		missing := rng.IntN(20) // in most sequences none is
		for number := 1; number <= 2+rng.IntN(5); number++ {
			if number == missing {
				continue
			}
			// In order, in any order, or all at once.
			base := pick(rng, choice[time.Duration]{50, time.Duration(number) * lease / 6}, choice[time.Duration]{30, span(rng, 0, lease)}, choice[time.Duration]{20, 0})
			times := newTimes(rng)
			for i := range times {
				times[i] += base
			}
			add(number, "", times[:min(len(times), 5)])
		}
	case rules[op].Shared:
		key = fmt.Sprintf("%08x-%04x-4%03x-a%03x-%012x", rng.Uint32(), rng.Uint32()>>16, rng.Uint32()>>20, rng.Uint32()>>20, rng.Uint64()>>16)
		add(0, "", newTimes(rng))
		for stranger := range 1 + rng.IntN(3) {
			add(0, fmt.Sprint("stranger", stranger), newTimes(rng)[:1])
			add(0, fmt.Sprint("stranger", stranger), []time.Duration{span(rng, 0, 3*lease)})
		}
	default:
		add(0, "", newTimes(rng))
	}
	return all
}

// newTimes are when a call is delivered, after the first time.
func newTimes(rng *rand.Rand) (at []time.Duration) {
	more := pick(rng,
		choice[int]{15, 0}, choice[int]{62, 1 + rng.IntN(3)}, choice[int]{19, 4 + rng.IntN(6)}, choice[int]{4, 20 + rng.IntN(20)})
	at = []time.Duration{0}
	for range more {
		// Duplicates come at the same time, shortly after, or when a lease may be over.
		at = append(at, pick(rng,
			choice[time.Duration]{30, 0},
			choice[time.Duration]{50, span(rng, 0, 500*time.Millisecond)},
			choice[time.Duration]{20, span(rng, 0, 3*lease)}))
	}
	return at
}
