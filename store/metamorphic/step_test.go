package metamorphic

import (
	"fmt"
	"strings"

	"pgregory.net/rapid"
)

// verb is what a step does.
type verb string

// The verbs. Those of stores come first, then those of engines, then time.
const (
	vGet     verb = "get"
	vApply   verb = "apply"
	vAgain   verb = "again" // a write that was sent before
	vDue     verb = "due"
	vPurge   verb = "purge"
	vSearch  verb = "search"
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

// weights is how often each verb is drawn, the simplest first.
var weights = []struct {
	verb  verb
	times int
}{
	{vGet, 3}, {vAdvance, 6}, {vBegin, 14}, {vEnd, 10}, {vEffect, 9}, {vRenew, 2}, {vSettle, 4}, {vLookup, 2}, {vForget, 2},
	{vSweep, 3}, {vApply, 8}, {vAgain, 2}, {vDue, 3}, {vPurge, 3}, {vSearch, 4},
}

// step is one operation of a list. What the numbers mean depends on the verb, and
// on what the list has done so far: the second newest attempt, say. So a list makes
// sense whatever is left out of it.
type step struct {
	verb    verb
	id      int // of the identities in play
	a, b, c int
}

func (s step) String() string { return fmt.Sprintf("%s id=%d %d,%d,%d", s.verb, s.id, s.a, s.b, s.c) }

func drawStep() *rapid.Generator[step] {
	var verbs []verb
	for _, w := range weights {
		for range w.times {
			verbs = append(verbs, w.verb)
		}
	}
	// Few identities, of which the first are in play most, so that steps meet.
	ids := []int{0, 0, 0, 0, 1, 1, 1, 2, 2, 3, 4, 5, 6, 7}
	return rapid.Custom(func(t *rapid.T) step {
		return step{
			verb: rapid.SampledFrom(verbs).Draw(t, "verb"), id: rapid.SampledFrom(ids).Draw(t, "id"),
			a: rapid.IntRange(0, 11).Draw(t, "a"), b: rapid.IntRange(0, 11).Draw(t, "b"), c: rapid.IntRange(0, 11).Draw(t, "c"),
		}
	})
}

// list is a list of operations.
type list struct {
	tenant int
	// focus chooses which identities are in play most.
	focus int
	steps []step
}

// parts is how many pieces a list has. Each is short as a rule, and may shrink to
// nothing.
const parts = 8

func drawList() *rapid.Generator[list] {
	piece := rapid.SliceOfN(drawStep(), 0, 24)
	return rapid.Custom(func(t *rapid.T) list {
		l := list{tenant: rapid.IntRange(0, 1000).Draw(t, "tenant"), focus: rapid.IntRange(0, identities-1).Draw(t, "focus")}
		for range parts {
			l.steps = append(l.steps, piece.Draw(t, "piece")...)
		}
		return l
	})
}

func (l list) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "tenant %d, focus %d\n", l.tenant, l.focus)
	for i, s := range l.steps {
		fmt.Fprintf(&b, "%3d %v\n", i, s)
	}
	return b.String()
}

// GoString is how the list is shown when it fails.
func (l list) GoString() string { return l.String() }
