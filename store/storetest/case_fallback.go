package storetest

import (
	"errors"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/storetest/faultstore"
)

// noExtras hides the extras of a store.
type noExtras struct{ semel.Store }

func (noExtras) Extras() store.Extras { return store.Extras{} }

// fallbackCases prove, for every store, what the engine does without an extra: it must be
// correct with only the four verbs.
var fallbackCases = []testCase{
	{canDue.fallback, "DueIndex: without it nothing is reaped or purged, and deliveries settle abandoned attempts as they meet them.", func(t *testing.T, env Env) {
		env.Store = noExtras{env.Store}
		deadHolder(t, env)
		e := newEngine(t, env.Store)
		begin(t, e, call(opRetry, "due"), semel.Execute).Attempt.Detach()
		env.Advance(semel.DefaultLease + time.Second)
		swept(t, e, "without an index", semel.Swept{})
	}},
	{canPurge.fallback, "Purger: without it expired records stay, and deliveries treat them as absent.", func(t *testing.T, env Env) {
		env.Store = noExtras{env.Store}
		windowEnds(t, env)
		e := newEngine(t, env.Store)
		last := begin(t, e, call(opHold, "k"), semel.Replay).Record
		env.Advance(semel.DefaultWindow)
		if n, err := e.Sweep(t.Context()); n.Purged != 0 || err != nil {
			t.Fatalf("Sweep without Purge gives %+v, %v", n, err)
		}
		stored(t, env.Store, last.ID, *last)
	}},
	{canWatch.fallback, "Watcher: without it the engine polls while it waits for an outcome.", func(t *testing.T, env Env) { waitForOther(t, noExtras{env.Store}) }},
	{canSearch.fallback, "Search lists records, for people. CodeUnsupported means that the store can't.", func(t *testing.T, env Env) {
		e := newEngine(t, noExtras{env.Store})
		complete(t, begin(t, e, call(opHold, "k"), semel.Execute).Attempt, "done")
		if page, err := e.Search(t.Context(), store.Query{}); !errors.Is(err, &semel.Error{Code: semel.CodeUnsupported}) {
			t.Fatalf("Search without an index gives %d records, %v", len(page.Records), err)
		}
		replays(t, e, call(opHold, "k"), "done")
	}},
	{canEvidence.fallback, "EvidenceLog: without it an operation that demands evidence is refused.", func(t *testing.T, env Env) {
		_, err := semel.New(noExtras{env.Store}, &semel.Options{Operations: []semel.Operation{opWitnessed}, Witness: versions{}})
		if !errors.Is(err, &semel.Error{Code: semel.CodeInvalidOperation}) {
			t.Fatalf("New on a store without an evidence log gives %v", err)
		}
	}},
}

// swept sweeps, and compares the records that the sweep handled.
func swept(t *testing.T, e *semel.Engine, when string, want semel.Swept) {
	t.Helper()
	if n, err := e.Sweep(t.Context()); n != want || err != nil {
		t.Fatalf("a sweep %s gives %+v, %v, want %+v", when, n, err, want)
	}
}

// sweepCases prove that the engine uses the extras.
var sweepCases = []testCase{
	{"a sweep settles abandoned attempts and purges expired records", ruleDue + " " + rulePurge, func(t *testing.T, env Env) {
		dying, control := faulty(t, env.Store)
		alive := newEngine(t, env.Store)
		begin(t, dying, call(opRetry, "k"), semel.Execute)
		begin(t, dying, call(opHold, "k"), semel.Execute)
		done := begin(t, dying, call(opHold, "done"), semel.Execute)
		complete(t, done.Attempt, "done")
		control.Cut(faultstore.NotApplied)
		swept(t, alive, "before anything is due", semel.Swept{})
		env.Advance(semel.DefaultLease + time.Second)
		swept(t, alive, "after the leases", semel.Swept{Due: 2, Abandoned: 1, Held: 1})
		swept(t, alive, "after that", semel.Swept{})
		env.Advance(semel.DefaultWindow)
		want := semel.Swept{Due: 2}
		if canPurge.has(env.Store) {
			want.Purged = 2
		}
		swept(t, alive, "after the window", want)
		if canPurge.has(env.Store) {
			stored(t, env.Store, done.Record.ID, semel.Record{})
		}
		begin(t, alive, call(opHold, "k"), semel.Held) // an unsettled call never expires
	}},
}
