package enginetest

import (
	"context"
	"maps"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
)

// TestAnswersAddAttributes: what an outcome or an effect says about a call is in the write
// that records it, so nobody ever sees one without the other.
func TestAnswersAddAttributes(t *testing.T) {
	inBubble(t, semel.Operation{}, func(t *testing.T, r *rig) {
		call := semel.Call{Operation: "op", Key: "k", Attributes: store.Attributes{"order": "9911", "state": "new"}}
		ans, err := r.Do(t.Context(), call, func(ctx context.Context, x semel.Execution) (semel.Result, error) {
			if _, err := x.StartEffect(ctx, "charge"); err != nil {
				return semel.Result{}, err
			}
			found := store.EffectFinding{Name: "charge", State: store.EffectConfirmed, Result: semel.Result{Data: []byte("1"), Attributes: store.Attributes{"transaction": "tx-1"}}}
			if err := x.SettleEffect(ctx, found); err != nil {
				return semel.Result{}, err
			}
			rec, err := r.store.Get(ctx, x.ID())
			if err != nil || rec.Attributes["transaction"] != "tx-1" || rec.Effects[0].Result.Attributes != nil {
				t.Errorf("after the effect: %v, %v", rec.Attributes, err)
			}
			return semel.Result{Data: []byte("{}"), Attributes: store.Attributes{"receipt": "r-1", "state": "paid", "long": strings.Repeat("x", 2000), "": "no name"}}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		rec, err := r.store.Get(t.Context(), ans.Record.ID)
		want := store.Attributes{"order": "9911", "state": "paid", "transaction": "tx-1", "receipt": "r-1"}
		if err != nil || !maps.Equal(rec.Attributes, want) || rec.Result.Attributes != nil {
			t.Errorf("stored %v, want %v (%v)", rec.Attributes, want, err)
		}
		if !maps.Equal(call.Attributes, store.Attributes{"order": "9911", "state": "new"}) {
			t.Error("the caller's map was changed")
		}
	})
}

// TestAttributesThatDoNotFitLoseNoOutcome: an ending is recorded whatever its attributes.
func TestAttributesThatDoNotFitLoseNoOutcome(t *testing.T) {
	inBubble(t, semel.Operation{MaxResult: 1}, func(t *testing.T, r *rig) {
		many := store.Attributes{}
		for c := 'a'; c <= 'z'; c++ {
			many[string(c)] = "v"
		}
		ans, err := r.Begin(t.Context(), semel.Call{Operation: "op", Key: "k"})
		if err != nil {
			t.Fatal(err)
		}
		if err := ans.Attempt.Reject(t.Context(), store.Failure{}, semel.Result{Data: []byte("too large"), Attributes: many}); err != nil {
			t.Fatal(err)
		}
		rec, err := r.store.Get(t.Context(), ans.Record.ID)
		if err != nil || rec.State != semel.Failed || len(rec.Attributes) != semel.MaxAttributes || rec.Attributes["a"] != "v" {
			t.Errorf("%v, %v, %v", rec.State, rec.Attributes, err)
		}
	})
}

// TestAttributesAreThoseOfTheDeliveryThatRan: where every attempt before proved that it did
// nothing, its delivery names nothing that happened. After any other it stays the first.
func TestAttributesAreThoseOfTheDeliveryThatRan(t *testing.T) {
	clause.Proves(t, "FOR-DATA.3")
	for name, c := range map[string]struct {
		first func(*semel.Attempt, context.Context) error
		want  string
	}{
		"aborted": {func(a *semel.Attempt, ctx context.Context) error { return a.Abort(ctx, store.Failure{}) }, "second"},
		"failed": {func(a *semel.Attempt, ctx context.Context) error {
			return a.Fail(ctx, store.Failure{}, semel.Result{})
		}, "first"},
		"aborted after an effect": {func(a *semel.Attempt, ctx context.Context) error {
			if _, err := a.StartEffect(ctx, "charge"); err != nil {
				return err
			}
			if err := a.SettleEffect(ctx, store.EffectFinding{Name: "charge", State: store.EffectConfirmed}); err != nil {
				return err
			}
			return a.Abort(ctx, store.Failure{})
		}, "first"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, semel.Operation{OnFailure: semel.RetryFailure}, func(t *testing.T, r *rig) {
				begin := func(request string) *semel.Attempt {
					ans, err := r.Begin(t.Context(), semel.Call{Operation: "op", Key: "k", Attributes: store.Attributes{"request": request}})
					if err != nil || ans.Decision != semel.Execute {
						t.Fatalf("%s: %s, %v", request, ans.Decision, err)
					}
					return ans.Attempt
				}
				if err := c.first(begin("first"), t.Context()); err != nil {
					t.Fatal(err)
				}
				second := begin("second")
				if err := second.Complete(t.Context(), semel.Result{}); err != nil {
					t.Fatal(err)
				}
				rec, err := r.store.Get(t.Context(), second.ID())
				if err != nil || rec.Attributes["request"] != c.want || len(rec.Earlier) != 1 {
					t.Errorf("the record is of the request %q, want %q: %v", rec.Attributes["request"], c.want, err)
				}
			})
		})
	}
}
