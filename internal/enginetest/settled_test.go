package enginetest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

// What somebody else than the holder decided is in the record, with who and why, for as
// long as the record is kept.
func TestWhoSettledIsInTheRecord(t *testing.T) {
	var ended semel.Ended
	var purged semel.Purged
	events := &semel.Events{Ended: func(ev semel.Ended) { ended = ev }, Purged: func(ev semel.Purged) { purged = ev }}
	inBubbleWith(t, semel.Options{Events: events}, semel.Operation{}, func(t *testing.T, r *rig) {
		must(t, begin(t, r.Engine, call("k")).Hold(t.Context(), "who knows"))
		olga := semel.Settlement{Outcome: semel.DispositionAborted, Who: "olga"}
		_, err := r.Settle(t.Context(), id("k"), olga, "nothing at the bank")
		must(t, err)
		rec, err := r.Lookup(t.Context(), id("k"))
		must(t, err)
		want := store.Settled{By: "operator", Who: "olga", Reason: "nothing at the bank", At: rec.EndedAt}
		if rec.Settled == nil || *rec.Settled != want {
			t.Fatalf("settled: %+v", rec.Settled)
		}
		if ended.By != "operator" || ended.Who != "olga" || ended.Reason != "nothing at the bank" {
			t.Errorf("told %+v", ended)
		}

		// A further attempt is the holder's own, and the settled one is history.
		second := begin(t, r.Engine, call("k"))
		must(t, second.Complete(t.Context(), data("done")))
		rec, err = r.Lookup(t.Context(), id("k"))
		must(t, err)
		if rec.Settled != nil || len(rec.Earlier) != 1 || rec.Earlier[0].Settled == nil || *rec.Earlier[0].Settled != want {
			t.Errorf("after a further attempt: %+v, %+v", rec.Settled, rec.Earlier)
		}
		pass(2 * time.Second)
		must(t, r.Purge(t.Context(), id("k"), semel.Removal{Reason: "asked for", Who: "olga"}))
		if purged.Who != "olga" || purged.Reason != "asked for" {
			t.Errorf("told %+v", purged)
		}
	})
}

func TestWhoSettledAnEffectIsInTheLedger(t *testing.T) {
	inBubble(t, semel.Operation{}, func(t *testing.T, r *rig) {
		a := begin(t, r.Engine, call("k"))
		for _, name := range []string{"first", "second"} {
			_, err := a.StartEffect(t.Context(), name)
			must(t, err)
		}
		must(t, a.SettleEffect(t.Context(), store.EffectFinding{Name: "second", State: store.EffectConfirmed}))
		must(t, a.Hold(t.Context(), "who knows"))
		finding := semel.Settlement{Effects: []store.EffectFinding{{Name: "first", State: store.EffectConfirmed}}, Who: "olga"}
		rec, err := r.Settle(t.Context(), id("k"), finding, strings.Repeat("x", 2000))
		must(t, err)
		if s := rec.Effects[0].Settled; s == nil || s.Who != "olga" || s.By != "operator" || len(s.Reason) != 1<<10 {
			t.Errorf("the effect that was settled: %+v", s)
		}
		if rec.Effects[1].Settled != nil {
			t.Errorf("the effect that its holder settled: %+v", rec.Effects[1].Settled)
		}
		if rec.Settled == nil || rec.Disposition != semel.DispositionAbandoned {
			t.Errorf("no effect was open any more: %+v", rec)
		}
	})
}

func TestAReconcilerIsNamed(t *testing.T) {
	op := semel.Operation{ReconcileEvery: time.Minute, Reconcile: func(context.Context, semel.Record) (semel.Settlement, error) {
		return semel.Settlement{Outcome: semel.DispositionCompleted, Result: data("seen"), Who: "the bank"}, nil
	}}
	inBubble(t, op, func(t *testing.T, r *rig) {
		must(t, begin(t, r.Engine, call("k")).Hold(t.Context(), "who knows"))
		_, err := r.Sweep(t.Context())
		must(t, err)
		pass(time.Second)
		rec, err := r.Lookup(t.Context(), id("k"))
		must(t, err)
		if rec.Settled == nil || rec.Settled.By != "reconciler" || rec.Settled.Who != "the bank" || rec.Settled.At != rec.EndedAt {
			t.Errorf("settled: %+v of %+v", rec.Settled, rec)
		}
	})
}

// A claim that was given back is told apart from an attempt that its holder aborted.
func TestAReleaseIsToldAsOne(t *testing.T) {
	evident(t, semel.Operation{Evidence: semel.EvidenceChanges}, func(t *testing.T, e *semel.Engine, st *memstore.Store, _ *scribe) {
		a := begin(t, e, call("k"))
		released, err := a.Release(t.Context())
		must(t, err)
		if got := told(t, st, "k"); !released || got[len(got)-1] != "released failed aborted" {
			t.Errorf("released: %v, told %q", released, got)
		}
	})
}
