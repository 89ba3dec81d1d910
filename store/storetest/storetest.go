// Package storetest is the contract of [semel.Store] in code. Every store passes
// the same suite: cases that each prove one rule, random histories compared
// with the memory store, concurrent histories checked for linearizability, and
// the engine on top of the store while the store fails.
//
// A store is hooked up by one test:
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, storetest.Virtual("mystore", func(t *testing.T) storetest.Env {
//			s := mystore.New()
//			t.Cleanup(func() { s.Close() })
//			return storetest.Env{Store: s}
//		}))
//	}
//
// What is random comes from one seed, which is printed; the flag
// -storetest.seed repeats it.
package storetest

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
)

// Harness makes stores for the suite.
type Harness struct {
	// Name names the store in what the suite prints.
	Name string
	// Run calls body once, with a new and empty store. The harness runs the
	// body and not the other way round, so that it can do so inside a
	// testing/synctest bubble, where hours pass at once.
	Run func(t *testing.T, body func(t *testing.T, env Env))
	// RealTime is Run outside of a bubble. The histories that run several
	// engines against failing stores need it: an attempt that waits for a
	// failing store keeps its lock, which is no durable wait. Nil if Run does
	// not use a bubble.
	RealTime func(t *testing.T, body func(t *testing.T, env Env))
}

// Env is what a body works with. The harness closes the store when the body has
// ended; a body may have closed it before.
type Env struct {
	// Store is the store under test.
	Store semel.Store
	// Advance lets at least d pass by the store's clock. Engines may be
	// running meanwhile.
	Advance func(d time.Duration)
	// Reopen closes the store and opens it again over the same data. Nil if
	// the store does not keep anything.
	Reopen func() semel.Store
}

// Virtual is the harness of a store that works within this process and reads
// the time from package time. Most bodies run in a bubble, where Advance takes
// no time. Open makes a new, empty store and sees to its closing by t.Cleanup;
// it leaves Env.Advance nil.
func Virtual(name string, open func(t *testing.T) Env) Harness {
	run := func(t *testing.T, body func(*testing.T, Env)) {
		env := open(t)
		env.Advance = time.Sleep
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

// seedFlag repeats what is random.
var seedFlag = flag.Uint64("storetest.seed", 0, "seed of what is random in the store suite; 0 chooses one")

// seed is that of this run.
func seed() uint64 {
	if *seedFlag != 0 {
		return *seedFlag
	}
	return rand.Uint64()>>1 + 1
}

// testCase proves one rule.
type testCase struct {
	// name is a sentence that says what holds.
	name string
	// why quotes the rule.
	why string
	// needs is the optional interface without which the case makes no sense;
	// nil if the four verbs suffice.
	needs *capability
	// realTime: run outside of a bubble.
	realTime bool
	run      func(t *testing.T, env Env)
}

// capability is an optional interface of a store.
type capability struct {
	name string
	has  func(semel.Store) bool
	// fallback names what proves that the engine works without it: a case that
	// runs for every store, with the capability hidden.
	fallback string
}

var (
	canDue = &capability{"Due", func(s semel.Store) bool { _, ok := s.(semel.DueStore); return ok },
		"without Due, deliveries settle abandoned attempts as they meet them"}
	canPurge = &capability{"Purge", func(s semel.Store) bool { _, ok := s.(semel.PurgeStore); return ok },
		"without Purge, expired records stay and count as absent"}
	canWatch = &capability{"Watch", func(s semel.Store) bool { _, ok := s.(semel.WatchStore); return ok },
		"without Watch, a waiting delivery polls for the outcome"}
	canLocal = &capability{"LocalStore", func(s semel.Store) bool { _, ok := s.(semel.LocalStore); return ok },
		"every case, which goes through the four verbs"}
	canSearch = &capability{"Search", func(s semel.Store) bool { _, ok := s.(semel.SearchStore); return ok },
		"without Search, the engine says that it can't list records"}
	canEvidence = &capability{"Evidence", func(s semel.Store) bool { _, ok := s.(semel.EvidenceStore); return ok },
		"without an evidence log, an operation that demands evidence is refused"}
	capabilities = []*capability{canDue, canPurge, canWatch, canLocal, canSearch, canEvidence}
)

func allCases() []testCase {
	return slices.Concat(
		applyCases, fidelityCases, clockCases, lifeCases, dueCases, purgeCases, watchCases, localCases, searchCases,
		engineCases, faultCases, sweepCases, fallbackCases, modelCases, linearCases, claimCases,
		evidenceCases, chronicleCases, []testCase{evidenceFallback},
	)
}

// Run runs the whole suite. A store that lacks an optional interface is tested
// for the documented fallback instead, and the summary, which go test -v shows,
// says so.
func Run(t *testing.T, h Harness) {
	t.Helper()
	if h.RealTime == nil {
		h.RealTime = h.Run
	}
	keeps := false
	has := map[*capability]bool{}
	h.Run(t, func(t *testing.T, env Env) {
		keeps = env.Reopen != nil
		for _, c := range capabilities {
			has[c] = c.has(env.Store)
		}
	})
	ran, left := 0, map[string]int{}
	for _, c := range allCases() {
		if c.needs != nil && !has[c.needs] {
			left[c.needs.name]++
			continue
		}
		ran++
		t.Run(c.name, func(t *testing.T) {
			run := h.Run
			if c.realTime {
				run = h.RealTime
			}
			run(t, c.run)
			if t.Failed() {
				t.Logf("the rule: %s", c.why)
			}
		})
	}
	var lines []string
	for _, c := range capabilities {
		if has[c] {
			lines = append(lines, c.name)
		} else {
			lines = append(lines, fmt.Sprintf("no %s (%d cases left out; instead: %s)", c.name, left[c.name], c.fallback))
		}
	}
	if !keeps {
		lines = append(lines, "keeps nothing when closed")
	}
	t.Logf("storetest: %s: %d cases; %s", h.Name, ran, strings.Join(lines, ", "))
}
