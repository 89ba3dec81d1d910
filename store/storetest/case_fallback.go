package storetest

import (
	"errors"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store/storetest/faultstore"
)

// bare hides the optional interfaces of a store.
type bare struct{ semel.Store }

// fallbackCases prove what the engine does without an optional interface, on
// every store: the four verbs must be enough to be right.
var fallbackCases = []testCase{
	{
		name: canDue.fallback,
		why:  "DueStore: without it nothing is reaped or purged, and deliveries settle abandoned attempts as they meet them.",
		run: func(t *testing.T, env Env) {
			dying, control := faulty(t, bare{env.Store})
			alive := newEngine(t, bare{env.Store})
			first := begin(t, dying, call(opRetry, "k"), semel.Execute)
			begin(t, dying, call(opHold, "k"), semel.Execute)
			control.Cut(faultstore.NotApplied)
			env.Advance(semel.DefaultLease + time.Second)
			if n, err := alive.Sweep(t.Context()); n != (semel.Swept{}) || err != nil {
				t.Fatalf("Sweep without an index gives %+v, %v", n, err)
			}
			second := begin(t, alive, call(opRetry, "k"), semel.Execute)
			if second.Record.Fence <= first.Record.Fence {
				t.Fatalf("fence %d follows %d", second.Record.Fence, first.Record.Fence)
			}
			begin(t, alive, call(opHold, "k"), semel.Held)
			complete(t, second.Attempt, "done")
			replays(t, alive, call(opRetry, "k"), "done")
		},
	},
	{
		name: canPurge.fallback,
		why:  "PurgeStore: without it expired records stay, and deliveries treat them as absent.",
		run: func(t *testing.T, env Env) {
			e := newEngine(t, bare{env.Store})
			first := begin(t, e, call(opHold, "k"), semel.Execute)
			complete(t, first.Attempt, "first")
			env.Advance(semel.DefaultWindow)
			if n, err := e.Sweep(t.Context()); n.Purged != 0 || err != nil {
				t.Fatalf("Sweep without Purge gives %+v, %v", n, err)
			}
			if rec, err := env.Store.Get(t.Context(), first.Record.ID); err != nil || rec.Fence != first.Record.Fence {
				t.Fatalf("the expired record is not there any more: fence %d, %v", rec.Fence, err)
			}
			second := begin(t, e, call(opHold, "k"), semel.Execute)
			if second.Record.Fence <= first.Record.Fence || second.Record.Attempt != 1 {
				t.Fatalf("attempt %d has fence %d after %d", second.Record.Attempt, second.Record.Fence, first.Record.Fence)
			}
		},
	},
	{
		name: canWatch.fallback,
		why:  "WatchStore: without it the engine polls while it waits for an outcome.",
		run:  func(t *testing.T, env Env) { waitForOther(t, bare{env.Store}) },
	},
	{
		name: canSearch.fallback,
		why:  "Search lists records, for people. CodeUnsupported means that the store can't.",
		run: func(t *testing.T, env Env) {
			e := newEngine(t, bare{env.Store})
			complete(t, begin(t, e, call(opHold, "k"), semel.Execute).Attempt, "done")
			if page, err := e.Search(t.Context(), semel.Query{}); !errors.Is(err, &semel.Error{Code: semel.CodeUnsupported}) {
				t.Fatalf("Search without an index gives %d records, %v", len(page.Records), err)
			}
			replays(t, e, call(opHold, "k"), "done")
		},
	},
}

// sweepCases prove what the optional interfaces are there for.
var sweepCases = []testCase{
	{
		name:  "a sweep settles abandoned attempts and purges expired records",
		why:   ruleDue + " " + rulePurge,
		needs: canDue,
		run: func(t *testing.T, env Env) {
			dying, control := faulty(t, env.Store)
			alive := newEngine(t, env.Store)
			begin(t, dying, call(opRetry, "k"), semel.Execute)
			begin(t, dying, call(opHold, "k"), semel.Execute)
			done := begin(t, dying, call(opHold, "done"), semel.Execute)
			complete(t, done.Attempt, "done")
			control.Cut(faultstore.NotApplied)
			if n, err := alive.Sweep(t.Context()); n != (semel.Swept{}) || err != nil {
				t.Fatalf("a sweep before anything is due gives %+v, %v", n, err)
			}
			env.Advance(semel.DefaultLease + time.Second)
			if n, err := alive.Sweep(t.Context()); n != (semel.Swept{Due: 2, Abandoned: 1, Held: 1}) || err != nil {
				t.Fatalf("the sweep after the leases gives %+v, %v", n, err)
			}
			if n, err := alive.Sweep(t.Context()); n != (semel.Swept{}) || err != nil {
				t.Fatalf("the sweep after that gives %+v, %v", n, err)
			}
			env.Advance(semel.DefaultWindow)
			want := semel.Swept{Due: 2}
			if canPurge.has(env.Store) {
				want.Purged = 2
			}
			if n, err := alive.Sweep(t.Context()); n != want || err != nil {
				t.Fatalf("the sweep after the window gives %+v, %v, want %+v", n, err, want)
			}
			if canPurge.has(env.Store) {
				stored(t, env.Store, done.Record.ID, semel.Record{})
			}
			begin(t, alive, call(opHold, "k"), semel.Held) // what is not settled never expires
		},
	},
}
