package enginetest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store/memstore"
)

// TestAnOperatorHasTheReconcilerAsked: a settlement that says only when to ask again makes a
// held record due then. It settles nothing, and is no evidence.
func TestAnOperatorHasTheReconcilerAsked(t *testing.T) {
	asked := 0
	op := semel.Operation{Evidence: semel.EvidenceChanges, ReconcileEvery: 24 * time.Hour, Reconcile: func(context.Context, semel.Record) (semel.Settlement, error) {
		asked++
		return semel.Settlement{}, nil
	}}
	evident(t, op, func(t *testing.T, e *semel.Engine, st *memstore.Store, _ *scribe) {
		c := call("k")
		a := begin(t, e, c)
		must(t, a.Hold(t.Context(), "why"))
		ctx, stop := context.WithCancel(t.Context())
		ran := make(chan error)
		go func() { ran <- e.Run(ctx, time.Second) }()
		pass(time.Minute)
		if asked != 1 {
			t.Errorf("asked %d times at first", asked)
		}
		rec, err := e.Settle(t.Context(), c.ID(""), semel.Settlement{RetryAfter: time.Nanosecond}, "")
		if err != nil || !rec.Held || rec.HeldReason != "why" || rec.Settled != nil {
			t.Errorf("%+v, %v", rec, err)
		}
		pass(time.Minute)
		if asked != 2 {
			t.Errorf("asked %d times after an operator wanted it", asked)
		}
		stop()
		<-ran
		want := []string{"claimed processing", "held processing"}
		if got := told(t, st, "k"); !slices.Equal(got, want) {
			t.Errorf("the log has %q", got)
		}
	})
}
