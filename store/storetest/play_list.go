package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// verb is what a step of a history does.
type verb string

// The verbs. Those of stores come first, then those of engines, then time.
const (
	vGet     verb = "get"
	vApply   verb = "apply"
	vAgain   verb = "again" // a write that was sent before
	vDue     verb = "due"
	vPurge   verb = "purge"
	vSearch  verb = "search"
	vReopen  verb = "reopen"
	vBegin   verb = "begin"
	vEnd     verb = "end"
	vRenew   verb = "renew"
	vEffect  verb = "effect"
	vSettle  verb = "settle"
	vLookup  verb = "lookup"
	vForget  verb = "forget" // purge by an operator
	vSweep   verb = "sweep"
	vAdvance verb = "advance"
)

// weighted has each verb as many times as its weight.
var weighted = func() (all []verb) {
	for v, times := range map[verb]int{
		vGet: 3, vAdvance: 6, vBegin: 14, vEnd: 10, vEffect: 9, vRenew: 2, vSettle: 4, vLookup: 2, vForget: 2,
		vSweep: 3, vApply: 16, vAgain: 3, vDue: 4, vPurge: 4, vSearch: 4,
	} {
		all = append(all, slices.Repeat([]verb{v}, times)...)
	}
	slices.Sort(all)
	return all
}()

// step is one operation of a history. The meaning of the numbers depends on the verb, and is
// relative to what the history has done so far, such as the second newest attempt. So a history
// still makes sense when steps are left out.
type step struct {
	verb    verb
	id      int // of the identities in play
	a, b, c int
}

func (s step) String() string { return fmt.Sprintf("%s id=%d %d,%d,%d", s.verb, s.id, s.a, s.b, s.c) }

// drawSteps draws a history.
func drawSteps(r *rand.Rand) []step {
	// Few identities, some of them much more often than others, so that steps meet. Each
	// history prefers other ones.
	ids := []int{0, 0, 0, 0, 1, 1, 1, 2, 2, 3, 4, 5, 6, 7}
	focus := r.IntN(identities)
	steps := make([]step, r.IntN(150))
	for i := range steps {
		steps[i] = step{
			verb: weighted[r.IntN(len(weighted))], id: (ids[r.IntN(len(ids))] + focus) % identities,
			a: r.IntN(12), b: r.IntN(12), c: r.IntN(12),
		}
	}
	// Reopen late, when there is something to lose, or after a purge, when there is something
	// to bring back. Do it rarely, so that bugs that need many writes show up too.
	at := len(steps) - len(steps)/4
	switch r.IntN(6) {
	case 0:
	case 1:
		for at > 0 && steps[at-1].verb != vPurge {
			at--
		}
	default:
		return steps
	}
	return slices.Insert(steps, at, step{verb: vReopen})
}

// shortest leaves out the steps that a history doesn't need to fail.
func shortest(steps []step, fails func([]step) bool) []step {
	for n := len(steps) / 2; n > 0; n /= 2 {
		for i := 0; i+n <= len(steps); {
			if less := slices.Concat(steps[:i], steps[i+n:]); fails(less) {
				steps = less
			} else {
				i += n
			}
		}
	}
	return steps
}

func listed(steps []step) string {
	var b strings.Builder
	for i, s := range steps {
		fmt.Fprintf(&b, "  %3d %v\n", i, s)
	}
	return b.String()
}
