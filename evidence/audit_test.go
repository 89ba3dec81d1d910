package evidence_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/internal/clause"
	"github.com/semelhq/semel/store"
)

// A row that was deleted, changed, put back or added behind the engine is found.
func TestAuditOfTheStore(t *testing.T) {
	clause.Proves(t, "IDS-XV.2", "IDS-XV.5")
	ctx := context.Background()
	for _, test := range []struct {
		name string
		lie  func(t *testing.T, r *rig)
		want []evidence.Discrepancy
	}{
		{"nothing was done", func(*testing.T, *rig) {}, nil},
		{"a row was deleted", func(t *testing.T, r *rig) { r.remove(t, "done") }, []evidence.Discrepancy{evidence.RecordMissing}},
		{"a held row was deleted, long after its window", func(t *testing.T, r *rig) {
			pass(100 * 24 * time.Hour)
			r.remove(t, "held")
		}, []evidence.Discrepancy{evidence.RecordMissing}},
		{"a row was deleted when its window was over", func(t *testing.T, r *rig) {
			pass(100 * 24 * time.Hour)
			r.remove(t, "done")
		}, nil},
		{"an operator purged one", func(t *testing.T, r *rig) {
			pass(2 * time.Second)
			if err := r.Purge(ctx, idOf("done"), semel.Removal{Reason: "old"}); err != nil {
				t.Fatal(err)
			}
		}, nil},
		{"a result was changed", func(t *testing.T, r *rig) {
			r.put(t, "done", func(rec *semel.Record) { rec.Result.Data = []byte("nothing was paid") })
		}, []evidence.Discrepancy{evidence.RecordChanged}},
		{"a window was made longer", func(t *testing.T, r *rig) {
			r.put(t, "done", func(rec *semel.Record) { rec.ExpiresAt = rec.ExpiresAt.Add(time.Hour) })
		}, []evidence.Discrepancy{evidence.RecordChanged}},
		{"a held row was made to run again", func(t *testing.T, r *rig) {
			r.put(t, "held", func(rec *semel.Record) {
				rec.State, rec.Disposition, rec.Held, rec.HeldReason = semel.Failed, semel.DispositionAborted, false, ""
			})
		}, []evidence.Discrepancy{evidence.RecordChanged}},
		{"a row was put back", func(t *testing.T, r *rig) {
			ans, err := r.Begin(ctx, call("acme", "back", "p"))
			before := *ans.Attempt.Record()
			if err := errors.Join(err, ans.Attempt.Complete(ctx, semel.Result{Data: []byte("x")})); err != nil {
				t.Fatal(err)
			}
			r.put(t, "back", func(rec *semel.Record) {
				was := rec.Revision
				*rec = before
				rec.Revision = was
			})
		}, []evidence.Discrepancy{evidence.RecordOlder}},
		{"a row was added", func(t *testing.T, r *rig) {
			rec, err := r.store.Get(ctx, idOf("done"))
			rec = new(*rec)
			rec.ID.Key, rec.Revision[0] = "forged", rec.Revision[0]+1
			if _, _, aerr := r.store.Apply(ctx, store.Write{Record: rec}); aerr != nil || err != nil {
				t.Fatal(err, aerr)
			}
		}, []evidence.Discrepancy{evidence.RecordUnknown}},
		{"a lease was renewed, which has no entry", func(t *testing.T, r *rig) {
			ans, err := r.Begin(ctx, call("acme", "long", "p"))
			if err != nil {
				t.Fatal(err)
			}
			pass(time.Minute)
			synctest.Wait()
			ans.Attempt.Detach()
		}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, nil, semel.Operation{Name: "op", Evidence: semel.EvidenceDurable}, semel.Operation{Name: "plain"})
				plain := call("acme", "plain", "p")
				plain.Operation = "plain"
				r.do(t, plain, "x")
				r.do(t, call("acme", "done", "p"), "paid")
				ans, err := r.Begin(ctx, call("acme", "held", "p"))
				if err := errors.Join(err, ans.Attempt.Hold(ctx, "why")); err != nil {
					t.Fatal(err)
				}
				if _, err := r.Settle(ctx, idOf("done"), semel.Settlement{}, ""); err == nil {
					t.Fatal("settled what is not held")
				}
				pass(time.Second)
				test.lie(t, r)
				pages := 0
				got, err := r.log.Audit(ctx, func(*evidence.Audit) { pages++ })
				if err != nil {
					t.Fatal(err)
				}
				var kinds []evidence.Discrepancy
				for _, f := range got.Faults {
					kinds = append(kinds, f.Kind)
					if f.Operation != "op" || f.Key == "" {
						t.Errorf("the fault is %+v", f)
					}
				}
				if !slices.Equal(kinds, test.want) || got.Found != len(test.want) || pages == 0 || got.Unlogged != 1 {
					t.Errorf("found %+v, want %v", got, test.want)
				}
			})
		})
	}
}
