package evidence_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/clause"
)

// A financial call whose record was deleted behind the engine is held, and doesn't run again.
func TestACallWhoseRecordIsGoneIsHeld(t *testing.T) {
	clause.Proves(t, "IDS-XV.6", "IDS-XV.2")
	ctx := context.Background()
	financial := semel.Operation{Name: "op", Financial: true, OnExpiry: semel.DeleteExpired, Evidence: semel.EvidenceDurable, PerRecord: semel.Rate{PerSecond: 1000, Burst: 1000}}
	critical := financial
	critical.Financial, critical.RefuseLate = false, true
	plain := critical
	plain.RefuseLate = false
	failing := func(err error) func(t *testing.T, r *rig) {
		return func(t *testing.T, r *rig) {
			_, _ = r.Do(ctx, call("acme", "k", "p"), func(context.Context, semel.Execution) (semel.Result, error) { return semel.Result{}, err })
			r.remove(t, "k")
		}
	}
	done := func(t *testing.T, r *rig) { r.do(t, call("acme", "k", "p"), "paid") }
	gone := func(t *testing.T, r *rig) { done(t, r); r.remove(t, "k") }
	for _, test := range []struct {
		name string
		op   semel.Operation
		was  func(t *testing.T, r *rig)
		want semel.Decision
	}{
		{"financial", financial, gone, semel.Held},
		{"critical", critical, gone, semel.Held},
		{"neither", plain, gone, semel.Execute},
		{"after duplicates", financial, func(t *testing.T, r *rig) { done(t, r); done(t, r); done(t, r); r.remove(t, "k") }, semel.Held},
		{"nothing was deleted", financial, done, semel.Replay},
		{"long after the window", financial, func(t *testing.T, r *rig) { gone(t, r); pass(8 * 24 * time.Hour) }, semel.Execute},
		{"within it", financial, func(t *testing.T, r *rig) { gone(t, r); pass(6 * 24 * time.Hour) }, semel.Held},
		{"a failure was recorded", financial, failing(errors.New("no answer")), semel.Held},
		{"a refusal was recorded", financial, failing(semel.Rejected("no", errors.New("no"))), semel.Held},
		{"nothing had happened", financial, failing(semel.Aborted(errors.New("not sent"))), semel.Execute},
		{"it was held", financial, failing(semel.Unknown(errors.New("no answer"))), semel.Held},
		{"it ran", financial, func(t *testing.T, r *rig) {
			ans, err := r.Begin(ctx, call("acme", "k", "p"))
			if err != nil {
				t.Fatal(err)
			}
			ans.Attempt.Detach()
			r.remove(t, "k")
		}, semel.Held},
		{"an operator purged it", financial, func(t *testing.T, r *rig) {
			done(t, r)
			pass(2 * time.Second)
			if err := r.Purge(ctx, idOf("k"), semel.Removal{Reason: "a test"}); err != nil {
				t.Fatal(err)
			}
		}, semel.Execute},
		{"a person was forgotten", financial, func(t *testing.T, r *rig) {
			done(t, r)
			pass(2 * time.Second)
			if err := r.Purge(ctx, idOf("k"), semel.Removal{Reason: "a test", EraseEvidence: true}); err != nil {
				t.Fatal(err)
			}
		}, semel.Execute},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, nil, test.op)
				test.was(t, r)
				ran := 0
				for range 2 {
					ans, err := r.Do(ctx, call("acme", "k", "p"), func(context.Context, semel.Execution) (semel.Result, error) {
						ran++
						return semel.Result{Data: []byte("again")}, nil
					})
					if ran == 0 && ans.Decision != test.want {
						t.Fatalf("got %q, %v", ans.Decision, err)
					}
				}
				if want := map[bool]int{true: 1}[test.want == semel.Execute]; ran != want {
					t.Errorf("ran %d times", ran)
				}
			})
		})
	}
}

// Whoever finds out what happened settles a call that is held for its missing record, and the
// audit finds the record again.
func TestACallWhoseRecordIsGoneIsSettled(t *testing.T) {
	clause.Proves(t, "IDS-XV.6")
	ctx := context.Background()
	r := newRig(t, nil, semel.Operation{Name: "op", Financial: true, OnExpiry: semel.DeleteExpired, Evidence: semel.EvidenceDurable})
	r.do(t, call("acme", "k", "p"), "paid")
	r.remove(t, "k")
	if ans := r.do(t, call("acme", "k", "p"), "again"); ans.Decision != semel.Held || ans.Record.HeldReason == "" {
		t.Fatalf("%+v", ans)
	}
	if _, err := r.Settle(ctx, idOf("k"), semel.Settlement{Outcome: semel.DispositionCompleted, Result: semel.Result{Data: []byte("paid")}, Who: "alice"}, "the bank has it"); err != nil {
		t.Fatal(err)
	}
	if ans := r.do(t, call("acme", "k", "p"), "again"); ans.Decision != semel.Replay || string(ans.Record.Result.Data) != "paid" {
		t.Fatalf("%+v", ans)
	}
	if found, err := r.log.Audit(ctx, nil); err != nil || found.Found != 0 {
		t.Errorf("%+v, %v", found, err)
	}
}
