package evidence_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/internal/clause"
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
			again, err := r.Engine.Door().Attach(ctx, id, before.Fence)
			if err := errors.Join(err, again.Complete(ctx, semel.Result{Data: []byte("paid twice")})); err != nil {
				t.Fatal(err)
			}
		}, "entries 1 and 2: story: an attempt ended twice"},
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
			if _, err := r.Door().NewEpoch(ctx); err != nil {
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

// Whatever honest engines do, their log never contradicts itself.
func TestHonestEnginesAreNeverBlamed(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx := context.Background()
			effects := func(op semel.Operation) semel.Operation {
				op.Evidence, op.Window, op.Lease = semel.EvidenceDecisions, 10*time.Second, 3*time.Second
				return op
			}
			r := newRig(t, nil,
				effects(semel.Operation{Name: "op", OnFailure: semel.RetryFailure}),
				effects(semel.Operation{Name: "again", OnAbandoned: semel.RetryAbandoned, OnFailure: semel.ReplayFailure}),
				effects(semel.Operation{Name: "asked", Confirmation: &semel.ConfirmationPolicy{}}),
			)
			var open []*semel.Attempt
			for range rapid.IntRange(1, 60).Draw(rt, "steps") {
				c := call("acme", fmt.Sprint("k", rapid.IntRange(0, 2).Draw(rt, "key")), rapid.SampledFrom([]string{"p", "p", "p", "q"}).Draw(rt, "payload"))
				c.Operation = rapid.SampledFrom([]string{"op", "again", "asked"}).Draw(rt, "operation")
				switch rapid.IntRange(0, 9).Draw(rt, "step") {
				case 0, 1, 2, 3:
					ans, err := r.Begin(ctx, c)
					if ans.Challenge != nil && rapid.Bool().Draw(rt, "confirmed") {
						c.Confirm = ans.Challenge.Token
						ans, err = r.Begin(ctx, c)
					}
					if err == nil && ans.Attempt != nil {
						open = append(open, ans.Attempt)
					}
				case 4, 5, 6:
					if len(open) == 0 {
						continue
					}
					i := rapid.IntRange(0, len(open)-1).Draw(rt, "attempt")
					a := open[i]
					open = append(open[:i:i], open[i+1:]...)
					switch rapid.IntRange(0, 6).Draw(rt, "end") {
					case 0, 1:
						_ = a.Complete(ctx, semel.Result{Data: []byte("x")})
					case 2:
						_ = a.Fail(ctx, store.Failure{}, semel.Result{})
					case 3:
						_ = a.Reject(ctx, store.Failure{}, semel.Result{})
					case 4:
						_ = a.Abort(ctx, store.Failure{})
					case 5:
						_ = a.Hold(ctx, "why")
					case 6:
						a.Detach() // its holder is gone
					}
				case 7:
					pass(time.Duration(rapid.IntRange(1, 12_000).Draw(rt, "ms")) * time.Millisecond)
				case 8:
					if _, err := r.Sweep(ctx); err != nil {
						t.Fatal(err)
					}
				case 9:
					id := c.ID(semel.SharePrincipal)
					outcome := rapid.SampledFrom([]store.Disposition{semel.DispositionCompleted, semel.DispositionAborted, semel.DispositionAbandoned}).Draw(rt, "outcome")
					if _, err := r.Settle(ctx, id, semel.Settlement{Outcome: outcome}, "seen"); err != nil {
						_ = r.Purge(ctx, id, semel.Removal{Reason: "old"})
					}
				}
			}
			for _, a := range open {
				a.Detach()
			}
			if found, err := r.log.Audit(ctx, nil); err != nil || found.Found != 0 {
				rt.Fatalf("an honest store was blamed: %+v, %v", found, err)
			}
			if report := r.verified(t); report.Finding != nil {
				rt.Fatalf("an honest log was blamed: %s", report.Finding)
			}
		})
	})
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
