package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store/storetest/faultstore"
)

// The operations that the suite runs on a store.
var (
	// opHold has the default policies.
	opHold = semel.Operation{Name: "hold"}
	// opRetry runs again after failure or abandonment.
	opRetry = semel.Operation{Name: "retry", OnFailure: semel.RetryFailure, OnAbandoned: semel.RetryAbandoned}
	// opBrief has a short window.
	opBrief = semel.Operation{Name: "brief", Window: time.Second}
	// opLedger declares its effects, so its ledger proves which of them began.
	opLedger = semel.Operation{Name: "ledger", Effects: []string{"charge"}}
)

// newEngine makes an engine on a store.
func newEngine(t *testing.T, s semel.Store) *semel.Engine {
	t.Helper()
	return configured(t, s, &semel.Options{Operations: []semel.Operation{opHold, opRetry, opLedger}})
}

func configured(t *testing.T, s semel.Store, opts *semel.Options) *semel.Engine {
	t.Helper()
	e, err := semel.New(s, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("Engine.Close: %v", err)
		}
	})
	return e
}

// faulty makes an engine over a store that fails as the control says.
func faulty(t *testing.T, s semel.Store) (*semel.Engine, *faultstore.Control) {
	t.Helper()
	wrapped, control := faultstore.New(s, nil)
	t.Cleanup(control.Settle)
	return newEngine(t, wrapped), control
}

// payload returns a fingerprint.
func payload(name string) semel.Fingerprint {
	return semel.FingerprintOf(semel.SchemeRaw, []byte(name))
}

// call returns a delivery.
func call(op semel.Operation, key string) semel.Call {
	return semel.Call{Tenant: "tenant", Principal: "principal", Operation: op.Name, Key: key, Fingerprint: payload("payload")}
}

// begin begins a call that must get the decision want.
func begin(t *testing.T, e *semel.Engine, c semel.Call, want semel.Decision) semel.Answer {
	t.Helper()
	ans, err := e.Begin(t.Context(), c)
	if err != nil {
		t.Fatalf("Begin: %v", err)
	}
	if ans.Decision != want {
		t.Fatalf("the delivery got %s, want %s (record: state %q, disposition %q, held %q)",
			ans.Decision, want, ans.Record.State, ans.Record.Disposition, ans.Record.HeldReason)
	}
	return ans
}

// complete ends an attempt with a result.
func complete(t *testing.T, a *semel.Attempt, result string) {
	t.Helper()
	if err := a.Complete(t.Context(), semel.Result{Data: []byte(result)}); err != nil {
		t.Fatalf("Complete: %v", err)
	}
}

// replays checks that a duplicate gets a result.
func replays(t *testing.T, e *semel.Engine, c semel.Call, result string) {
	t.Helper()
	if ans := begin(t, e, c, semel.Replay); string(ans.Record.Result.Data) != result {
		t.Fatalf("a duplicate got the result %q, want %q", ans.Record.Result.Data, result)
	}
}

// pass waits for d, or until ctx ends. Use Env.Advance to let time pass for the store.
func pass(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// eventually repeats f until it reports true.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for !f() {
		if err := pass(ctx, 10*time.Millisecond); err != nil {
			t.Fatalf("after %v still not: %s", patience, what)
		}
	}
}

// fired fails the test unless faults were injected, and logs which.
func fired(t *testing.T, controls ...*faultstore.Control) int {
	t.Helper()
	sum := map[string]int{}
	total := 0
	for _, c := range controls {
		for fault, n := range c.Fired() {
			sum[fmt.Sprintf("%s %s", fault.Verb, fault.Form)] += n
			total += n
		}
	}
	if total == 0 {
		t.Fatal("no fault fired, so nothing is proved")
	}
	t.Logf("faults fired: %v", sum)
	return total
}
