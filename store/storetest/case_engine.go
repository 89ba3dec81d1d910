package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/storetest/faultstore"
)

const (
	ruleOnce    = "One delivery executes. Every other gets the same outcome, or is told that the call is in flight."
	ruleFence   = "A fence strictly rises with every new holder and is never reused, not even after a purge."
	ruleAbandon = "What becomes of an attempt whose holder went away is the policy's: held by default, run again where that is allowed."
	ruleLate    = "Completing is possible after the lease has ended as long as nobody else was given the right to execute, also if the record is held by then."
	// of Operation.Remember
	ruleRemember = "A call is recognised until its record expires. From the end of its window on, deliveries are told that its answer isn't kept, and the store has nothing of it but names, times and states."
	ruleWindow   = "An expired record counts as absent, whether it was purged or not."
)

var engineCases = []testCase{
	{"of 200 simultaneous duplicates on two engines one executes", ruleOnce, duplicates},
	{"a dead holder's call is held, or runs again under a higher fence, by policy", ruleAbandon + " " + ruleFence, deadHolder},
	{"a holder that was cut off may complete after its lease while nobody took over", ruleLate, func(t *testing.T, env Env) {
		for _, op := range []semel.Operation{opHold, opRetry} {
			e, control := faulty(t, env.Store)
			ans := begin(t, e, call(op, "k"), semel.Execute)
			control.Cut(faultstore.NotApplied)
			env.Advance(semel.DefaultLease + time.Second)
			control.Heal()
			complete(t, ans.Attempt, "late")
			replays(t, newEngine(t, env.Store), call(op, "k"), "late")
		}
	}},
	{"an outcome is replayed within its window, and after it the call is a new one", ruleWindow, windowEnds},
	{"beyond its window a call is remembered: its answer is gone, its name stays, and it doesn't run", ruleRemember, remembers},
	{"the ledger outlives its attempt: a recorded effect is not called again, a started one holds the call",
		"A further attempt of the same call gets the recorded result. An effect without a result forbids another attempt, whatever the policy.",
		func(t *testing.T, env Env) {
			clause.Proves(t, "IDS-XI.S3")
			dying, control := faulty(t, env.Store)
			alive := newEngine(t, env.Store)
			charged, opened := begin(t, dying, call(opLedger, "charged"), semel.Execute), begin(t, dying, call(opLedger, "open"), semel.Execute)
			var effectKey string
			if _, err := semel.Effect(t.Context(), charged.Attempt, "charge", func(_ context.Context, key string) (string, error) {
				effectKey = key
				return "receipt 1", nil
			}); err != nil {
				t.Fatal(err)
			}
			timeout := errors.New("no answer")
			if _, err := semel.Effect(t.Context(), opened.Attempt, "charge", func(context.Context, string) (string, error) { return "", timeout }); !errors.Is(err, timeout) {
				t.Fatal(err)
			}
			control.Cut(faultstore.NotApplied)
			env.Advance(semel.DefaultLease + time.Second)

			second := begin(t, alive, call(opLedger, "charged"), semel.Execute)
			receipt, err := semel.Effect(t.Context(), second.Attempt, "charge", func(context.Context, string) (string, error) {
				t.Error("a recorded effect was called again")
				return "receipt 2", nil
			})
			if receipt != "receipt 1" || err != nil {
				t.Fatalf("the recorded effect gives %q, %v", receipt, err)
			}
			if ledger := second.Attempt.Effects(); len(ledger) != 1 || ledger[0].Key != effectKey {
				t.Fatalf("the ledger of the second attempt is %+v, want one effect with key %s", ledger, effectKey)
			}
			begin(t, alive, call(opLedger, "open"), semel.Held)
		}},
	{"a delivery that waited for a dead holder gets a whole lease", "A lease is counted from the claim, by the store's clock.", func(t *testing.T, env Env) {
		op := semel.Operation{Name: "op", Lease: 900 * time.Millisecond, OnAbandoned: semel.RetryAbandoned}
		wrapped, control := faultstore.New(env.Store, nil)
		dying := configured(t, wrapped, &semel.Options{Operations: []semel.Operation{op}})
		alive := configured(t, env.Store, &semel.Options{Operations: []semel.Operation{op}})
		begin(t, dying, call(op, "k"), semel.Execute)
		control.Cut(faultstore.NotApplied)
		c := call(op, "k")
		c.Wait = patience
		second := begin(t, alive, c, semel.Execute)
		first := second.Record.Earlier[0]
		if age := second.Record.StartedAt.Sub(first.StartedAt); age < op.Lease {
			t.Fatalf("the second lease is counted from %v after the first claim, when the first lease of %v was not over", age, op.Lease)
		}
		// If the claim takes a third of the lease, the engine renews the lease at once.
		if lease := second.Record.LeaseUntil.Sub(second.Record.StartedAt); lease < op.Lease {
			t.Fatalf("the second lease takes %v, want %v", lease, op.Lease)
		}
	}},
	{"a waiting delivery gets the outcome of another engine's attempt", ruleOnce + " " + ruleWatch, func(t *testing.T, env Env) { waitForOther(t, env.Store) }},
}

var fenceCases = []testCase{
	{"fences rise across purges", ruleFence, func(t *testing.T, env Env) {
		if err := risingFences(t.Context(), env); err != nil {
			t.Fatal(err)
		}
	}},
}

// deadHolder lets an engine die while it holds a call of each policy.
func deadHolder(t *testing.T, env Env) {
	clause.Proves(t, "CORE-INV.1", "IDS-IX.3", "G-PROGRESS")
	dying, control := faulty(t, env.Store)
	alive := newEngine(t, env.Store)
	first := begin(t, dying, call(opRetry, "k"), semel.Execute)
	held := begin(t, dying, call(opHold, "k"), semel.Execute)
	begin(t, alive, call(opRetry, "k"), semel.InFlight)
	begin(t, alive, call(opHold, "k"), semel.InFlight)
	control.Cut(faultstore.NotApplied) // from here on it acts as if it had died
	if _, err := dying.Lookup(t.Context(), first.Record.ID); err == nil {
		t.Fatal("an engine that was cut off can read")
	}
	env.Advance(semel.DefaultLease + time.Second)
	second := begin(t, alive, call(opRetry, "k"), semel.Execute)
	if second.Record.Fence <= first.Record.Fence || second.Record.Attempt != 2 || len(second.Record.Earlier) != 1 {
		t.Fatalf("attempt %d has fence %d after %d, and %d earlier ones", second.Record.Attempt, second.Record.Fence, first.Record.Fence, len(second.Record.Earlier))
	}
	begin(t, alive, call(opHold, "k"), semel.Held)
	begin(t, alive, call(opHold, "k"), semel.Held)
	control.Heal()
	// The first holder wakes up.
	if err := first.Attempt.Complete(t.Context(), semel.Result{Data: []byte("late")}); !errors.Is(err, semel.ErrLeaseLost) {
		t.Fatalf("the first holder completes after it was replaced: %v", err)
	}
	complete(t, second.Attempt, "second")
	replays(t, alive, call(opRetry, "k"), "second")
	// The held call has had no second holder, so the first one may end it.
	complete(t, held.Attempt, "held, then done")
	replays(t, alive, call(opHold, "k"), "held, then done")
	fired(t, control)
}

// windowEnds makes a call, a duplicate within the window, and the same call after it.
func windowEnds(t *testing.T, env Env) {
	clause.Proves(t, "IDS-VIII.4", "MAP-EXP.1")
	e := newEngine(t, env.Store)
	first := begin(t, e, call(opHold, "k"), semel.Execute)
	env.Advance(time.Second)
	complete(t, first.Attempt, "first")
	env.Advance(semel.DefaultWindow - time.Minute)
	replays(t, e, call(opHold, "k"), "first")
	env.Advance(time.Minute)
	second := begin(t, e, call(opHold, "k"), semel.Execute)
	if second.Record.Fence <= first.Record.Fence || second.Record.Attempt != 1 {
		t.Fatalf("the new call is attempt %d under fence %d after %d", second.Record.Attempt, second.Record.Fence, first.Record.Fence)
	}
	complete(t, second.Attempt, "second")
	replays(t, e, call(opHold, "k"), "second")
}

// remembers makes a call whose operation remembers it for longer than its window, and looks at it before
// and after the write that takes its answer.
func remembers(t *testing.T, env Env) {
	clause.Proves(t, "IDS-VIII.4")
	op := semel.Operation{Name: "remembered", Window: time.Minute, Remember: time.Hour, KeepPayload: true}
	opts := &semel.Options{Operations: []semel.Operation{op}}
	one, other := configured(t, env.Store, opts), configured(t, env.Store, opts)
	c := call(op, "k")
	c.Payload, c.Attributes = []byte("secret"), store.Attributes{"order": "o-1"}
	first := begin(t, one, c, semel.Execute)
	complete(t, first.Attempt, "secret")
	replays(t, other, c, "secret")
	env.Advance(op.Window)
	named := func() {
		t.Helper()
		for _, e := range []*semel.Engine{one, other} {
			ans := begin(t, e, c, semel.Replay)
			if rec := ans.Record; !errors.Is(ans.Err(), &semel.Error{Code: semel.CodeResultNotKept}) || rec.Result.Data != nil || rec.Payload != nil || rec.Attributes["order"] != "o-1" || rec.Fence != first.Record.Fence {
				t.Fatalf("after the window a delivery gets %+v, %v", rec, ans.Err())
			}
		}
	}
	named()
	if env.Store.Extras().Due != nil {
		var n semel.Swept
		for range 100 { // beside the records of other cases
			more, err := one.Sweep(t.Context())
			if n.Forgotten += more.Forgotten; err != nil || n.Forgotten > 0 {
				break
			}
		}
		rec, err := env.Store.Get(t.Context(), first.Record.ID)
		if err != nil || n.Forgotten != 1 || rec.Result.Data != nil || rec.Payload != nil || rec.NextAt != rec.ExpiresAt {
			t.Fatalf("after %+v the store has %+v, %v", n, rec, err)
		}
		if x := env.Store.Extras(); x.Search != nil {
			tenant := c.Tenant
			page, err := x.Search.Search(t.Context(), store.Query{Tenant: &tenant, Operation: op.Name, Attributes: c.Attributes, Limit: 10})
			if err != nil || len(page.Records) != 1 {
				t.Fatalf("by its attribute a search finds %+v, %v", page, err)
			}
		}
		named()
	}
	env.Advance(op.Remember - op.Window)
	if second := begin(t, other, c, semel.Execute); second.Record.Fence <= first.Record.Fence || second.Record.Attempt != 1 {
		t.Fatalf("the new call is attempt %d under fence %d after %d", second.Record.Attempt, second.Record.Fence, first.Record.Fence)
	}
}

// duplicates sends one call 200 times concurrently.
func duplicates(t *testing.T, env Env) {
	clause.Proves(t, "IDS-V.1", "IDS-IX.1", "IDS-IX.3", "IDS-XIII.1", "IDS-XIII.2", "CORE-INV.1", "CORE-CONC.2")
	const copies = 200
	engines := []*semel.Engine{newEngine(t, env.Store), newEngine(t, env.Store)}
	var ran atomic.Int64
	var counts sync.Map
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range copies {
		c := call(opHold, "k")
		if i%2 == 0 {
			c.Wait = patience
		}
		wg.Go(func() {
			<-start
			ans, err := engines[i/2%2].Do(t.Context(), c, func(ctx context.Context, a semel.Execution) (semel.Result, error) {
				n := ran.Add(1)
				return semel.Result{Data: fmt.Appendf(nil, "execution %d", n)}, pass(ctx, 50*time.Millisecond)
			})
			n, _ := counts.LoadOrStore(ans.Decision, new(atomic.Int64))
			n.(*atomic.Int64).Add(1)
			switch {
			case ans.Decision == semel.InFlight && errors.Is(err, semel.ErrInFlight) && c.Wait == 0:
			case err != nil:
				t.Errorf("copy %d got %s and error %v", i, ans.Decision, err)
			case string(ans.Record.Result.Data) != "execution 1":
				t.Errorf("copy %d got the result %q", i, ans.Record.Result.Data)
			}
		})
	}
	close(start)
	wg.Wait()
	if n := ran.Load(); n != 1 {
		t.Fatalf("%d duplicates were executed %d times", copies, n)
	}
	if n, ok := counts.Load(semel.Execute); !ok || n.(*atomic.Int64).Load() != 1 {
		t.Fatal("not exactly one delivery was told to execute")
	}
	replays(t, engines[0], call(opHold, "k"), "execution 1")
}

// risingFences takes one key through its window many times, purges it in between, and reports a
// fence that doesn't rise.
func risingFences(ctx context.Context, env Env) error {
	var engines [2]*semel.Engine
	for i := range engines {
		e, err := semel.New(env.Store, &semel.Options{Operations: []semel.Operation{opBrief}})
		if err != nil {
			return err
		}
		defer e.Close(ctx)
		engines[i] = e
	}
	last := int64(0)
	for round := range 30 {
		e := engines[round%2]
		ans, err := e.Begin(ctx, call(opBrief, "k"))
		if err != nil {
			return err
		}
		if ans.Decision != semel.Execute {
			return fmt.Errorf("round %d got %s", round, ans.Decision)
		}
		if ans.Record.Fence <= last {
			return fmt.Errorf("round %d got fence %d after %d", round, ans.Record.Fence, last)
		}
		last = ans.Record.Fence
		if err := ans.Attempt.Complete(ctx, semel.Result{}); err != nil {
			return err
		}
		env.Advance(opBrief.Window)
		rec, err := env.Store.Get(ctx, ans.Record.ID)
		if err != nil {
			return err
		}
		if round%3 == 2 {
			continue // this time follow the expired record instead of purging it
		}
		if n, err := env.Store.Extras().Purge.Purge(ctx, []store.Ref{ref(*rec)}); n != 1 || err != nil {
			return fmt.Errorf("purge gives %d, %w", n, err)
		}
	}
	return nil
}

// waitForOther waits on one engine for an attempt of another one.
func waitForOther(t *testing.T, s semel.Store) {
	clause.Proves(t, "IDS-IX.1")
	running, waiting := newEngine(t, s), newEngine(t, s)
	ans := begin(t, running, call(opHold, "k"), semel.Execute)
	c := call(opHold, "k")
	c.Wait = patience
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			got, err := waiting.Begin(t.Context(), c)
			switch {
			case err != nil:
				t.Errorf("a waiting delivery got error %v", err)
			case got.Decision != semel.Replay || string(got.Record.Result.Data) != "done":
				t.Errorf("a waiting delivery got %s, %q", got.Decision, got.Record.Result.Data)
			}
		})
	}
	if err := pass(t.Context(), 100*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	complete(t, ans.Attempt, "done")
	wg.Wait()
}
