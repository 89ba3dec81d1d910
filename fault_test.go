package semel_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store/storetest/faultstore"
)

var forms = []faultstore.Form{faultstore.NotApplied, faultstore.Applied, faultstore.Late}

func TestShortStoreFaultsAreInvisible(t *testing.T) {
	for _, form := range forms {
		t.Run(string(form), func(t *testing.T) {
			inBubble(t, semel.Operation{}, func(t *testing.T, r *rig) {
				runs := 0
				for range 3 {
					r.faults.Next(faultstore.Apply, form, 2)
					ans, err := r.Do(t.Context(), call("k"), func(context.Context, *semel.Attempt) (semel.Result, error) {
						runs++
						r.faults.Next(faultstore.Apply, form, 2)
						return data("x"), nil
					})
					if must(t, err); string(ans.Record.Result.Data) != "x" || ans.Record.Attempt != 1 {
						t.Errorf("got %+v", ans.Record)
					}
				}
				if runs != 1 || r.faults.Fired()[faultstore.Fault{Verb: faultstore.Apply, Form: form}] < 4 {
					t.Errorf("%d runs, faults %v", runs, r.faults.Fired())
				}
			})
		})
	}
}

func TestStoreOutOfReachAtClaimExecutesNothing(t *testing.T) {
	for _, form := range append(forms, faultstore.Hang) {
		t.Run(string(form), func(t *testing.T) {
			inBubble(t, semel.Operation{}, func(t *testing.T, r *rig) {
				r.faults.Next(faultstore.Apply, form, 1000)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				start := time.Now()
				_, err := r.Do(ctx, call("k"), func(context.Context, *semel.Attempt) (semel.Result, error) {
					t.Error("executed without a durable claim")
					return semel.Result{}, nil
				})
				wantCode(t, err, semel.CodeStoreUnavailable)
				if d := time.Since(start); d > 7*time.Second {
					t.Errorf("answered after %v", d)
				}
				r.faults.Heal()
				// A claim that arrived after all is withdrawn: nothing ran.
				pass(5 * time.Second)
				if form != faultstore.NotApplied && form != faultstore.Hang {
					rec, err := r.Lookup(t.Context(), id("k"))
					if must(t, err); rec.Disposition != semel.DispositionAborted {
						t.Errorf("the claim was left %s %s", rec.State, rec.Disposition)
					}
				}
				begin(t, r.Engine, call("k"))
			})
		})
	}
}

func TestStoreOutOfReachAtCompletionIsUnknownAndNeverFree(t *testing.T) {
	for _, form := range forms {
		t.Run(string(form), func(t *testing.T) {
			inBubble(t, semel.Operation{OnAbandoned: semel.HoldAbandoned}, func(t *testing.T, r *rig) {
				a := begin(t, r.Engine, call("k"))
				r.faults.Next(faultstore.Apply, form, 1000)
				wantCode(t, a.Complete(t.Context(), data("x")), semel.CodeUnknown)
				r.faults.Heal()
				synctest.Wait()
				ans, err := r.second(t).Begin(t.Context(), call("k"))
				must(t, err)
				if ans.Decision == semel.Execute {
					t.Fatal("a failed write freed the key")
				}
				must(t, a.Complete(t.Context(), data("x"))) // asked again, it is resolved
				if ans := decides(t, r.Engine, call("k"), semel.Replay); string(ans.Record.Result.Data) != "x" {
					t.Errorf("got %q", ans.Record.Result.Data)
				}
			})
		})
	}
}

func TestReadsThatFailAreNotAbsence(t *testing.T) {
	inBubble(t, semel.Operation{InFlight: semel.WaitInFlight, RefuseLate: true, Window: time.Minute}, func(t *testing.T, r *rig) {
		begin(t, r.Engine, call("k"))
		r.faults.Next(faultstore.Get, faultstore.NotApplied, 1)
		_, err := r.Begin(t.Context(), call("k"))
		if wantCode(t, err, semel.CodeStoreUnavailable); !errors.Is(err, faultstore.ErrInjected) {
			t.Errorf("got %v", err)
		}
		r.faults.Next(faultstore.Get, faultstore.NotApplied, 1)
		_, err = r.Lookup(t.Context(), id("k"))
		wantCode(t, err, semel.CodeStoreUnavailable)
		r.faults.Next(faultstore.Now, faultstore.NotApplied, 1)
		_, err = r.Begin(t.Context(), call("new"))
		wantCode(t, err, semel.CodeStoreUnavailable)
		old := call("old")
		old.FirstSent = time.Now().Add(-time.Hour)
		r.faults.Next(faultstore.Get, faultstore.NotApplied, 1)
		_, err = r.Begin(t.Context(), old)
		wantCode(t, err, semel.CodeStoreUnavailable)
		r.faults.Next(faultstore.Due, faultstore.NotApplied, 1)
		_, err = r.Sweep(t.Context())
		wantCode(t, err, semel.CodeStoreUnavailable)
	})
}
