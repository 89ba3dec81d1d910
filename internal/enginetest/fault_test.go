package enginetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
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
					ans, err := r.Do(t.Context(), call("k"), func(context.Context, semel.Execution) (semel.Result, error) {
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
	clause.Proves(t, "G-CLOSED")
	for _, form := range append(forms, faultstore.Hang) {
		t.Run(string(form), func(t *testing.T) {
			inBubble(t, semel.Operation{}, func(t *testing.T, r *rig) {
				r.faults.Next(faultstore.Apply, form, 1000)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				start := time.Now()
				_, err := r.Do(ctx, call("k"), func(context.Context, semel.Execution) (semel.Result, error) {
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

func TestStoreThatHangsDoesNotTakeTheHolderWithIt(t *testing.T) {
	inBubble(t, semel.Operation{Lease: time.Hour}, func(t *testing.T, r *rig) {
		for _, verb := range []faultstore.Verb{faultstore.Apply, faultstore.Now} {
			a := begin(t, r.Engine, call(string(verb)))
			r.faults.Next(verb, faultstore.Hang, 1)
			start := time.Now()
			wantCode(t, a.Complete(t.Context(), data("x")), semel.CodeUnknown)
			if d := time.Since(start); d != semel.DefaultStoreTimeout {
				t.Errorf("%s hangs: told so after %v", verb, d)
			}
			must(t, a.Complete(t.Context(), data("x")))
		}
	})
}

func TestRenewalLetsOtherWritesPass(t *testing.T) {
	inBubble(t, semel.Operation{Lease: 300 * time.Millisecond}, func(t *testing.T, r *rig) {
		a := begin(t, r.Engine, call("k"))
		r.faults.Next(faultstore.Apply, faultstore.NotApplied, 3)
		<-time.After(103 * time.Millisecond) // between two tries of the renewal
		start := time.Now()
		must(t, a.Complete(t.Context(), data("x")))
		if d := time.Since(start); d > 20*time.Millisecond {
			t.Errorf("the renewal kept the end waiting for %v", d)
		}
	})
}

func TestWordsOfAHandlerAreKeptAsText(t *testing.T) {
	inBubble(t, semel.Operation{}, func(t *testing.T, r *rig) {
		f := store.Failure{Code: "a\x00b", Message: "\xff" + strings.Repeat("é", 2000)}
		a := begin(t, r.Engine, call("k"))
		must(t, a.Fail(t.Context(), f, semel.Result{}))
		must(t, a.Fail(t.Context(), f, semel.Result{}))
		rec, err := r.Lookup(t.Context(), id("k"))
		must(t, err)
		if m := rec.Failure.Message; !utf8.ValidString(m) || len(m) > 1100 || rec.Failure.Code != "a\uFFFDb" {
			t.Errorf("kept as %q", rec.Failure)
		}
	})
}

// What is told of a failed call to the store counts the tries.
func TestTriesAreCounted(t *testing.T) {
	var tries []int
	events := &semel.Events{StoreFailed: func(e semel.StoreFailed) { tries = append(tries, e.Try) }}
	inBubbleWith(t, semel.Options{Events: events}, semel.Operation{}, func(t *testing.T, r *rig) {
		a := begin(t, r.Engine, call("k"))
		r.faults.Next(faultstore.Apply, faultstore.NotApplied, 3)
		must(t, a.Complete(t.Context(), data("x")))
		if !slices.Equal(tries, []int{1, 2, 3}) {
			t.Errorf("told of the tries %v", tries)
		}
	})
}

// cancelling is a store that cancels something of its own in each read.
type cancelling struct{ semel.Store }

func (cancelling) Get(context.Context, semel.ID) (*semel.Record, error) {
	return nil, fmt.Errorf("no connection: %w", context.Canceled)
}

// A cancellation is the caller's only if the caller has hung up. Any other is a failure of the
// store, and told.
func TestACancellationOfTheStoreIsAFailure(t *testing.T) {
	told := 0
	e, err := semel.New(cancelling{memstore.New()}, &semel.Options{Events: &semel.Events{StoreFailed: func(semel.StoreFailed) { told++ }}})
	must(t, err)
	_, err = e.Lookup(t.Context(), id("k"))
	wantCode(t, err, semel.CodeStoreUnavailable)
	if told != 1 {
		t.Errorf("told %d times of a store that fails", told)
	}
	gone, hangUp := context.WithCancel(t.Context())
	hangUp()
	_, err = e.Lookup(gone, id("k"))
	wantCode(t, err, semel.CodeStoreUnavailable)
	if told != 1 {
		t.Errorf("told %d times of a caller who hangs up", told-1)
	}
}
