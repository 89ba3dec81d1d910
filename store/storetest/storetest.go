// Package storetest is the contract of [semel.Store] in code. Every store passes the same
// suite: cases that each prove one rule, random histories compared with the memory store,
// histories of sequences compared with the outcome that each number must get, concurrent
// histories checked for linearizability, and engines on the store while their calls to it fail.
//
// Run it on your store with one test:
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, storetest.Virtual("mystore", func(t *testing.T) storetest.Env {
//			s := mystore.New()
//			t.Cleanup(func() { s.Close() })
//			return storetest.Env{Store: s}
//		}))
//	}
//
// Everything random comes from one seed, which the suite prints. To repeat a run, pass the seed
// by the flag -storetest.seed.
package storetest

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/thorough"
)

// Harness makes stores for the suite.
type Harness struct {
	// Name is the store's name in the output of the suite.
	Name string
	// Run calls body once, with a new, empty store. It may do so inside a testing/synctest
	// bubble, where hours pass at once.
	Run func(t *testing.T, body func(t *testing.T, env Env))
	// Parallel lets cases run at the same time. Set it if bodies mostly wait for a server,
	// and the stores of two bodies don't get in each other's way.
	Parallel bool
	// RealTime is Run outside a bubble; nil if Run doesn't use one. Histories of several
	// engines on failing stores need it: while an attempt waits for a failing store, others
	// wait for its mutex, and synctest doesn't count that as durably blocked.
	RealTime func(t *testing.T, body func(t *testing.T, env Env))
}

// Env is the environment of a body. The harness closes the store when the body has ended; the
// body may have closed it already.
type Env struct {
	// Store is the store under test.
	Store semel.Store
	// Advance lets at least d pass by the store's clock. Engines may be running meanwhile.
	Advance func(d time.Duration)
	// Reopen closes the store, opens it again over the same data and returns the new one. Nil
	// if the store keeps nothing.
	Reopen func() semel.Store
	// Leap sets the clock that the store's clock follows ahead by a time, or back, for as long as
	// the body runs. The monotonic clocks continue unchanged, and Env.Advance doesn't move it.
	// Nil if nobody can set it, for example if the store keeps nothing and follows no clock.
	Leap func(by time.Duration)
}

// reopen opens the store again if it keeps anything.
func (e *Env) reopen() {
	if e.Reopen != nil {
		e.Store = e.Reopen()
	}
}

// Virtual returns the harness for a store that works within this process and takes the time
// from package time. Most bodies run in a bubble, where Advance takes no time. open makes a
// new, empty store and closes it by t.Cleanup; it leaves Env.Advance nil.
func Virtual(name string, open func(t *testing.T) Env) Harness {
	run := func(t *testing.T, body func(*testing.T, Env)) {
		env := open(t)
		env.Advance = func(d time.Duration) { <-time.After(d) }
		body(t, env)
	}
	return Harness{
		Name: name,
		Run: func(t *testing.T, body func(*testing.T, Env)) {
			synctest.Test(t, func(t *testing.T) { run(t, body) })
		},
		RealTime: run,
	}
}

// seedFlag repeats a random run.
var seedFlag = flag.Uint64("storetest.seed", 0, "seed of what is random in the store suite; 0: a fixed one, or with SEMEL_THOROUGH=1 another each time")

// seed returns the seed of this run.
func seed() uint64 {
	if *seedFlag != 0 {
		return *seedFlag
	}
	return thorough.Seed()
}

// testCase proves one rule.
type testCase struct {
	name string // a sentence that says what is true
	why  string // quotes the rule
	run  func(t *testing.T, env Env)
}

// group is a set of cases with the same conditions.
type group struct {
	cases []testCase
	// needs is the extra that the cases are about; nil if the four verbs are enough.
	needs *capability
	// realTime: the cases run outside a bubble.
	realTime bool
	// leaps: somebody must be able to set the clock.
	leaps bool
}

// capability is one of the extras of a store.
type capability struct {
	name string
	has  func(semel.Store) bool
	// fallback names the case that proves that the engine works without it. That case runs
	// for every store, with the capability hidden.
	fallback string
}

var (
	canDue = &capability{"Due", func(s semel.Store) bool { return s.Extras().Due != nil },
		"without Due, deliveries settle abandoned attempts as they meet them"}
	canPurge = &capability{"Purge", func(s semel.Store) bool { return s.Extras().Purge != nil },
		"without Purge, expired records stay and count as absent"}
	canWatch = &capability{"Watch", func(s semel.Store) bool { return s.Extras().Watch != nil },
		"without Watch, a waiting delivery polls for the outcome"}
	canSearch = &capability{"Search", func(s semel.Store) bool { return s.Extras().Search != nil },
		"without Search, the engine says that it can't list records"}
	canEvidence = &capability{"Evidence", func(s semel.Store) bool { return s.Extras().Evidence != nil },
		"without an evidence log, an operation that demands evidence is refused"}
	capabilities = []*capability{canDue, canPurge, canWatch, canSearch, canEvidence}
)

func allGroups() []group {
	return []group{
		{cases: applyCases},
		// Rapid shrinks a failing record for a limited time, which must be real time.
		{cases: fieldCases, realTime: true},
		{cases: fidelityCases}, {cases: leapCases, leaps: true}, {cases: clockCases}, {cases: lifeCases},
		{cases: dueCases, needs: canDue}, {cases: purgeCases, needs: canPurge}, {cases: watchCases, needs: canWatch},
		{cases: searchCases, needs: canSearch}, {cases: attributeCases, needs: canSearch},
		{cases: engineCases}, {cases: fenceCases, needs: canPurge}, {cases: faultCases}, {cases: sweepCases, needs: canDue},
		{cases: fallbackCases}, {cases: modelCases}, {cases: sequenceCases}, {cases: linearCases}, {cases: claimCases, realTime: true},
		{cases: evidenceCases, needs: canEvidence}, {cases: evidenceFaultCases, needs: canEvidence},
	}
}

// Run runs the whole suite. If your store lacks an extra, Run skips its cases, and the summary,
// which go test -v shows, says so. The documented fallbacks are always tested.
func Run(t *testing.T, h Harness) {
	t.Helper()
	if h.RealTime == nil {
		h.RealTime = h.Run
	}
	keeps, leaps := false, false
	has := map[*capability]bool{}
	h.Run(t, func(t *testing.T, env Env) {
		keeps, leaps = env.Reopen != nil, env.Leap != nil
		for _, c := range capabilities {
			has[c] = c.has(env.Store)
		}
	})
	ran, left := 0, map[string]int{}
	for _, g := range allGroups() {
		if g.needs != nil && !has[g.needs] {
			left[g.needs.name] += len(g.cases)
			continue
		}
		if g.leaps && !leaps {
			continue
		}
		run := h.Run
		if g.realTime {
			run = h.RealTime
		}
		for _, c := range g.cases {
			ran++
			t.Run(c.name, func(t *testing.T) {
				if h.Parallel {
					t.Parallel()
				}
				run(t, c.run)
				if t.Failed() {
					t.Logf("the rule: %s", c.why)
				}
			})
		}
	}
	var lines []string
	for _, c := range capabilities {
		if has[c] {
			lines = append(lines, c.name)
		} else {
			lines = append(lines, fmt.Sprintf("no %s (%d cases left out; instead: %s)", c.name, left[c.name], c.fallback))
		}
	}
	if !leaps {
		lines = append(lines, "follows no clock that can be set")
	}
	if !keeps {
		lines = append(lines, "keeps nothing when closed")
	}
	t.Logf("storetest: %s: %d cases; %s", h.Name, ran, strings.Join(lines, ", "))
}
