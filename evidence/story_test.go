package evidence_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
)

// verified signs and exports the log of a rig, and verifies it.
func (r *rig) verified(t testing.TB) evidence.Report {
	t.Helper()
	ctx := context.Background()
	if err := errors.Join(r.log.Close(ctx), r.log.Integrate(ctx)); err != nil {
		t.Fatal(err)
	}
	reader, err := r.log.Reader(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := reader.Export(ctx, &b, nil); err != nil {
		t.Fatal(err)
	}
	report, err := evidence.Verify(&b, r.keys.Trust(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func idOf(key string) semel.ID {
	c := call("acme", key, "")
	return c.ID(semel.SharePrincipal)
}

// remove deletes a record behind the engine.
func (r *rig) remove(t testing.TB, key string) {
	t.Helper()
	id := idOf(key)
	rec, err := r.store.Get(context.Background(), id)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := r.store.Purge(context.Background(), []store.Ref{{ID: id, Revision: rec.Revision}}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
}

// put changes a record behind the engine.
func (r *rig) put(t testing.TB, key string, change func(rec *semel.Record)) {
	t.Helper()
	rec, err := r.store.Get(context.Background(), idOf(key))
	if err != nil {
		t.Fatal(err)
	}
	rec, was := new(*rec), rec.Revision
	rec.Revision[0]++
	change(rec)
	if _, ok, err := r.store.Apply(context.Background(), store.Write{Record: rec, Expect: was}); !ok || err != nil {
		t.Fatal(ok, err)
	}
}

// forge adds a record behind the engine, as if one that exists had another key.
func (r *rig) forge(t testing.TB, from, key string, change func(rec *semel.Record)) {
	t.Helper()
	rec, err := r.store.Get(context.Background(), idOf(from))
	if err != nil {
		t.Fatal(err)
	}
	rec = new(*rec)
	rec.ID.Key = key
	rec.Fence, rec.Origin = rec.Fence+1, rec.Origin+1
	rec.Revision[0]++
	if change != nil {
		change(rec)
	}
	if _, ok, err := r.store.Apply(context.Background(), store.Write{Record: rec}); !ok || err != nil {
		t.Fatal(ok, err)
	}
}

// Entries that are all as they were signed may contradict each other.
func TestTheStoryIsJudged(t *testing.T) {
	clause.Proves(t, "IDS-XV.5")
	ctx := context.Background()
	do := func(t *testing.T, r *rig) { r.do(t, call("acme", "k", "p"), "paid") }
	id := idOf("k")
	for _, test := range []struct {
		name string
		lie  func(t *testing.T, r *rig)
		want string // empty: nothing is wrong
	}{
		{"a record that was deleted, and its call ran again", func(t *testing.T, r *rig) {
			do(t, r)
			r.remove(t, "k")
			do(t, r)
		}, "entries 1 and 2: story: executed again, although the outcome is kept until"},
		{"a record that was deleted while its attempt ran", func(t *testing.T, r *rig) {
			if _, err := r.Begin(ctx, call("acme", "k", "p")); err != nil {
				t.Fatal(err)
			}
			r.remove(t, "k")
			do(t, r)
		}, "entries 0 and 1: story: executed again as if it were new"},
		{"a held record that was deleted", func(t *testing.T, r *rig) {
			ans, err := r.Begin(ctx, call("acme", "k", "p"))
			if err := errors.Join(err, ans.Attempt.Hold(ctx, "why")); err != nil {
				t.Fatal(err)
			}
			r.remove(t, "k")
			do(t, r)
		}, "entries 1 and 2: story: executed again while it was held"},
		{"a failed record that was deleted", func(t *testing.T, r *rig) {
			ans, err := r.Begin(ctx, call("acme", "k", "p"))
			if err := errors.Join(err, ans.Attempt.Fail(ctx, store.Failure{Code: "no"}, semel.Result{})); err != nil {
				t.Fatal(err)
			}
			r.remove(t, "k")
			do(t, r)
		}, "entries 1 and 2: story: executed again as if it were new, although the failure"},
		{"a result that was changed, and replayed", func(t *testing.T, r *rig) {
			do(t, r)
			r.put(t, "k", func(rec *semel.Record) { rec.Result.Data = []byte("nothing was paid") })
			do(t, r)
		}, "entries 1 and 2: story: a delivery got another outcome"},
		{"a record that was put back to before its end", func(t *testing.T, r *rig) {
			ans, err := r.Begin(ctx, call("acme", "k", "p"))
			before := *ans.Attempt.Record()
			if err := errors.Join(err, ans.Attempt.Complete(ctx, semel.Result{Data: []byte("paid")})); err != nil {
				t.Fatal(err)
			}
			r.put(t, "k", func(rec *semel.Record) {
				was := rec.Revision
				*rec = before
				rec.Revision = was
			})
			again, err := r.Engine.Internal().Attach(ctx, id, before.Fence)
			if err := errors.Join(err, again.Complete(ctx, semel.Result{Data: []byte("paid twice")})); err != nil {
				t.Fatal(err)
			}
		}, "entries 1 and 2: story: an attempt ended twice"},
		{"a held record that was changed to one without a holder, which ran again", func(t *testing.T, r *rig) {
			ans, err := r.Begin(ctx, call("acme", "k", "p"))
			if err := errors.Join(err, ans.Attempt.Hold(ctx, "why")); err != nil {
				t.Fatal(err)
			}
			r.put(t, "k", func(rec *semel.Record) { rec.Held, rec.HeldReason, rec.Policy.Retry = false, "", true })
			do(t, r)
		}, "entries 1 and 2: story: executed again while it was held"},
		{"a held record that was changed to one that was aborted, which ran again", func(t *testing.T, r *rig) {
			ans, err := r.Begin(ctx, call("acme", "k", "p"))
			if err := errors.Join(err, ans.Attempt.Hold(ctx, "why")); err != nil {
				t.Fatal(err)
			}
			r.put(t, "k", func(rec *semel.Record) {
				rec.State, rec.Disposition, rec.Held, rec.HeldReason = semel.Failed, semel.DispositionAborted, false, ""
			})
			do(t, r)
		}, "entries 1 and 2: story: executed again while it was held"},
		{"a record that may have had an effect, which was changed to one of another caller", func(t *testing.T, r *rig) {
			ans, err := r.Begin(ctx, call("acme", "k", "p"))
			if err := errors.Join(err, ans.Attempt.Hold(ctx, "why")); err != nil {
				t.Fatal(err)
			}
			if _, err := r.Settle(ctx, id, semel.Settlement{Outcome: semel.DispositionAbandoned}, "run it"); err != nil {
				t.Fatal(err)
			}
			r.put(t, "k", func(rec *semel.Record) { rec.BoundTo, rec.Disposition = "another", semel.DispositionAborted })
			do(t, r)
		}, "entries 2 and 3: story: executed again as if it were new, although an attempt before"},
		{"a record that was made to forget an attempt that may have had an effect", func(t *testing.T, r *rig) {
			ans, err := r.Begin(ctx, call("acme", "k", "p"))
			if err := errors.Join(err, ans.Attempt.Hold(ctx, "why")); err != nil {
				t.Fatal(err)
			}
			if _, err := r.Settle(ctx, id, semel.Settlement{Outcome: semel.DispositionAbandoned}, "run it"); err != nil {
				t.Fatal(err)
			}
			ans, err = r.Begin(ctx, call("acme", "k", "p"))
			if err := errors.Join(err, ans.Attempt.Abort(ctx, store.Failure{})); err != nil {
				t.Fatal(err)
			}
			r.put(t, "k", func(rec *semel.Record) { rec.BoundTo, rec.Earlier = "another", nil })
			do(t, r)
		}, "entries 4 and 5: story: executed again as if it were new, although an attempt before"},
		{"a running record that was deleted, long after its window", func(t *testing.T, r *rig) {
			if _, err := r.Begin(ctx, call("acme", "k", "p")); err != nil {
				t.Fatal(err)
			}
			r.remove(t, "k")
			pass(100 * 24 * time.Hour)
			do(t, r)
		}, "entries 0 and 1: story: executed again as if it were new"},
		{"a record that was added, and replayed", func(t *testing.T, r *rig) {
			do(t, r)
			pass(time.Second)
			r.forge(t, "k", "forged", nil)
			r.do(t, call("acme", "forged", "p"), "x")
		}, "entry 2: story: a delivery got an outcome, and nothing tells of the attempt"},
		{"a running record that was changed to a completed one, and replayed", func(t *testing.T, r *rig) {
			ans, err := r.Begin(ctx, call("acme", "k", "p"))
			if err != nil {
				t.Fatal(err)
			}
			ans.Attempt.Detach()
			r.put(t, "k", func(rec *semel.Record) {
				rec.State, rec.Disposition, rec.LeaseUntil = semel.Completed, semel.DispositionCompleted, 0
				rec.EndedAt, rec.ExpiresAt = rec.UpdatedAt, rec.UpdatedAt.Add(time.Hour)
			})
			do(t, r)
		}, "entries 0 and 1: story: a delivery got an outcome of the attempt, and nothing tells how it ended"},
		{"a record in the place of another, and replayed", func(t *testing.T, r *rig) {
			do(t, r)
			r.put(t, "k", func(rec *semel.Record) { rec.Fence++ })
			do(t, r)
		}, "entry 2: story: a delivery got an outcome, and nothing tells of the attempt"},
		{"a record from before the evidence is no contradiction", func(t *testing.T, r *rig) {
			do(t, r)
			r.forge(t, "k", "old", func(rec *semel.Record) { rec.Fence -= 1_000_000 })
			r.do(t, call("acme", "old", "p"), "x")
		}, ""},
		{"nor is an outcome that was counted before its record was purged", func(t *testing.T, r *rig) {
			do(t, r)
			for range 10 {
				c := call("acme", "k", "p")
				c.BoundTo = "x" // nobody has verified it
				r.do(t, c, "")
				do(t, r)
			}
			pass(2 * time.Second)
			if err := r.Purge(ctx, id, semel.Removal{Reason: "asked for"}); err != nil {
				t.Fatal(err)
			}
			do(t, r)
		}, ""},
		{"nor is another caller after an attempt without effect", func(t *testing.T, r *rig) {
			ans, err := r.Begin(ctx, call("acme", "k", "p"))
			if err := errors.Join(err, ans.Attempt.Abort(ctx, store.Failure{})); err != nil {
				t.Fatal(err)
			}
			c := call("acme", "k", "p")
			c.BoundTo = "x"
			r.do(t, c, "paid")
		}, ""},
		{"a purge by an operator is no contradiction", func(t *testing.T, r *rig) {
			do(t, r)
			pass(2 * time.Second)
			if err := r.Purge(ctx, id, semel.Removal{Reason: "asked for"}); err != nil {
				t.Fatal(err)
			}
			do(t, r)
		}, ""},
		{"nor is a restored store", func(t *testing.T, r *rig) {
			do(t, r)
			r.remove(t, "k")
			if _, err := r.Internal().NewEpoch(ctx); err != nil {
				t.Fatal(err)
			}
			do(t, r)
		}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, nil)
				test.lie(t, r)
				report := r.verified(t)
				switch {
				case test.want == "" && report.Finding != nil:
					t.Errorf("found %s", report.Finding)
				case test.want != "" && (report.Finding == nil || !strings.HasPrefix(report.Finding.String(), test.want)):
					t.Errorf("found %v, want %s", report.Finding, test.want)
				case test.want != "" && (report.ContradictionsFound != 1 || len(report.Contradictions) != 1 || report.Size == 0):
					t.Errorf("the report is %+v", report)
				}
			})
		})
	}
}

// pass lets virtual time pass.
func pass(d time.Duration) { <-time.After(d) }

func TestOpeningsOfOneRecordAreErased(t *testing.T) {
	ctx := context.Background()
	r := newRig(t, nil)
	r.do(t, call("acme", "a", "p"), "x")
	r.do(t, call("acme", "b", "p"), "x")
	r.do(t, call("acme", "a", "p"), "")
	n, err := r.log.EraseRecord(ctx, idOf("a"))
	if err != nil || n != 3 {
		t.Fatal(n, err)
	}
	list, err := r.store.ReadEvidence(ctx, 0, 10)
	if err != nil || len(list) != 5 {
		t.Fatal(len(list), err)
	}
	for i, en := range list {
		if erased := en.Opening == nil; erased != (i != 2 && i != 3) {
			t.Errorf("entry %d: erased %v", i, erased)
		}
	}
	if report := r.verified(t); report.Finding != nil || report.Erased != 3 {
		t.Errorf("%+v", report)
	}
}
