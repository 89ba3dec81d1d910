package enginetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/storetest/faultstore"
)

type receipt struct{ Reference string }

func TestEffectIsRecordedBeforeAndAfter(t *testing.T) {
	clause.Proves(t, "IDS-XI.S3")
	inBubble(t, semel.Operation{}, func(t *testing.T, r *rig) {
		a := begin(t, r.Engine, call("k"))
		got, err := semel.Effect(t.Context(), a, "charge", func(_ context.Context, key string) (receipt, error) {
			rec, err := r.Lookup(t.Context(), id("k"))
			must(t, err)
			if len(rec.Effects) != 1 || rec.Effects[0].State != store.EffectStarted || rec.Effects[0].Key != key || len(key) != 43 {
				t.Errorf("when the provider is called the ledger says %+v", rec.Effects)
			}
			return receipt{"r1"}, nil
		})
		must(t, err)
		rec, err := r.Lookup(t.Context(), id("k"))
		must(t, err)
		if got.Reference != "r1" || rec.Effects[0].State != store.EffectConfirmed || string(rec.Effects[0].Result.Data) != `{"Reference":"r1"}` {
			t.Errorf("got %+v, recorded %+v", got, rec.Effects)
		}
	})
}

func TestFurtherAttemptsReplayRecordedEffects(t *testing.T) {
	clause.Proves(t, "IDS-XI.S1", "IDS-XI.S3")
	refused := errors.New("no such card")
	inBubble(t, semel.Operation{}, func(t *testing.T, r *rig) {
		calls := map[string][]string{}
		run := func(last error) error {
			_, err := r.Do(t.Context(), call("k"), func(ctx context.Context, a semel.Execution) (semel.Result, error) {
				effect := func(name string, fail error) (receipt, error) {
					return semel.Effect(ctx, a, name, func(_ context.Context, key string) (receipt, error) {
						calls[name] = append(calls[name], key)
						return receipt{fmt.Sprint(name, len(calls[name]))}, fail
					})
				}
				if got, err := effect("charge", nil); err != nil || got.Reference != "charge1" {
					t.Errorf("charge: %+v, %v", got, err)
				}
				if _, err := effect("refuse", semel.Rejected("card", refused)); err == nil {
					t.Error("the provider's refusal was lost")
				}
				if _, err := effect("mail", last); err != nil {
					return semel.Result{}, semel.Aborted(err)
				}
				return data("done"), nil
			})
			return err
		}
		wantCode(t, run(semel.Aborted(errors.New("dial refused"))), semel.CodeAborted)
		must(t, run(nil))
		if len(calls["charge"]) != 1 || len(calls["refuse"]) != 1 {
			t.Errorf("recorded effects were called again: %v", calls)
		}
		if m := calls["mail"]; len(m) != 2 || m[0] != m[1] || m[0] == calls["charge"][0] {
			t.Errorf("the refuted effect's keys: %v", m)
		}
	})
}

func TestARecordedResultThatDoesNotFitItsType(t *testing.T) {
	inBubble(t, semel.Operation{OnFailure: semel.RetryFailure}, func(t *testing.T, r *rig) {
		a := begin(t, r.Engine, call("k"))
		_, err := semel.Effect(t.Context(), a, "charge", func(context.Context, string) (string, error) { return "r1", nil })
		must(t, err)
		must(t, a.Fail(t.Context(), store.Failure{}, semel.Result{}))
		_, err = semel.Effect(t.Context(), begin(t, r.Engine, call("k")), "charge", func(context.Context, string) (receipt, error) {
			t.Error("the effect was called again")
			return receipt{}, nil
		})
		wantCode(t, err, semel.CodeUnknown)
		if _, ok := errors.AsType[*json.UnmarshalTypeError](err); !ok {
			t.Errorf("%v does not say why", err)
		}
	})
}

func TestRecordedNumbersKeepTheirDigits(t *testing.T) {
	inBubble(t, semel.Operation{OnFailure: semel.RetryFailure}, func(t *testing.T, r *rig) {
		const long = 616581622363398142 // which float64 doesn't hold
		for range 2 {
			got, ans, err := semel.Do(t.Context(), r.Engine, call("k"), func(context.Context, semel.Execution) (map[string]any, error) {
				return map[string]any{"id": uint64(long)}, nil
			})
			must(t, err)
			if text := fmt.Sprint(got["id"]); text != fmt.Sprint(uint64(long)) {
				t.Errorf("%s: the result has %s", ans.Decision, text)
			}
		}
		for range 2 {
			a := begin(t, r.Engine, call("effect"))
			got, err := semel.Effect(t.Context(), a, "charge", func(context.Context, string) (any, error) { return uint64(long), nil })
			must(t, err)
			if fmt.Sprint(got) != fmt.Sprint(uint64(long)) {
				t.Errorf("the effect has %v", got)
			}
			must(t, a.Fail(t.Context(), store.Failure{}, semel.Result{}))
		}
	})
}

func TestEffectKeysDifferBetweenCallsThatReuseAKey(t *testing.T) {
	inBubble(t, semel.Operation{Window: time.Minute}, func(t *testing.T, r *rig) {
		keys := map[string]bool{}
		for range 2 {
			a := begin(t, r.Engine, call("k"))
			_, err := semel.Effect(t.Context(), a, "charge", func(_ context.Context, key string) (int, error) {
				keys[key] = true
				return 0, nil
			})
			must(t, err)
			must(t, a.Complete(t.Context(), semel.Result{}))
			pass(2 * time.Minute)
		}
		if len(keys) != 2 {
			t.Errorf("a new call after the window has the old call's effect key")
		}
	})
}

func TestStartedEffectIsNeverRepeated(t *testing.T) {
	clause.Proves(t, "IDS-XI.S3", "IDS-V.1")
	op := semel.Operation{OnAbandoned: semel.RetryAbandoned, OnFailure: semel.RetryFailure, Lease: 3 * time.Second, Effects: []string{"charge", "mail/*"}}
	inBubble(t, op, func(t *testing.T, r *rig) {
		calls := 0
		timeout := errors.New("i/o timeout")
		charge := func(ctx context.Context, a semel.Execution) (semel.Result, error) {
			_, err := semel.Effect(ctx, a, "charge", func(context.Context, string) (int, error) {
				calls++
				return 0, timeout
			})
			return semel.Result{}, err
		}
		_, err := r.Do(t.Context(), call("k"), charge)
		if wantCode(t, err, semel.CodeUnknown); !errors.Is(err, timeout) {
			t.Errorf("got %v", err)
		}
		for range 3 {
			pass(time.Minute)
			_, err = r.Sweep(t.Context())
			must(t, err)
			_, err = r.Do(t.Context(), call("k"), charge)
			wantCode(t, err, semel.CodeHeld)
		}
		if calls != 1 {
			t.Errorf("the provider was called %d times", calls)
		}
		// Within one attempt too.
		a := begin(t, r.Engine, call("k2"))
		for range 2 {
			_, err = semel.Effect(t.Context(), a, "mail/1", func(context.Context, string) (int, error) { calls++; return 0, timeout })
		}
		if wantCode(t, err, semel.CodeEffectUnknown); calls != 2 {
			t.Errorf("the provider was called %d times", calls-1)
		}
	})
}

func TestResultDoesNotHideAnOpenEffect(t *testing.T) {
	inBubble(t, semel.Operation{}, func(t *testing.T, r *rig) {
		_, err := r.Do(t.Context(), call("k"), func(ctx context.Context, a semel.Execution) (semel.Result, error) {
			_, _ = semel.Effect(ctx, a, "charge", func(context.Context, string) (int, error) { return 0, errors.New("timeout") })
			return data("fine"), nil
		})
		wantCode(t, err, semel.CodeUnknown)
		decides(t, r.Engine, call("k"), semel.Held)
	})
}

func TestDeclaredEffects(t *testing.T) {
	op := semel.Operation{Effects: []string{"charge"}, Lease: 3 * time.Second}
	inBubble(t, op, func(t *testing.T, r *rig) {
		a := begin(t, r.Engine, call("k"))
		_, err := semel.Effect(t.Context(), a, "other", func(context.Context, string) (int, error) {
			t.Error("an effect that is not declared was called")
			return 0, nil
		})
		wantCode(t, err, semel.CodeInvalidCall)
		r.faults.Cut(faultstore.NotApplied) // the holder dies
		pass(4 * time.Second)
		b := begin(t, r.second(t), call("k")) // none began: it may run again
		if b.Number() != 2 || b.Record().Earlier[0].Disposition != semel.DispositionAbandoned {
			t.Errorf("got %+v", b.Record())
		}
	})
}

func TestEffectsOfOneAttemptMayRunTogether(t *testing.T) {
	inBubble(t, semel.Operation{}, func(t *testing.T, r *rig) {
		a := begin(t, r.Engine, call("k"))
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				v, err := semel.Effect(t.Context(), a, fmt.Sprint("e", i), func(context.Context, string) (int, error) {
					<-time.After(time.Second)
					return i, nil
				})
				if err != nil || v != i {
					t.Errorf("effect %d: %d, %v", i, v, err)
				}
			})
		}
		wg.Wait()
		must(t, a.Complete(t.Context(), semel.Result{}))
		if n := len(a.Effects()); n != 20 {
			t.Errorf("%d effects recorded", n)
		}
	})
}

func TestLedgerUnderStoreFaults(t *testing.T) {
	for _, form := range []faultstore.Form{faultstore.NotApplied, faultstore.Applied, faultstore.Late} {
		t.Run("the intent is "+string(form)+" for a while", func(t *testing.T) {
			inBubble(t, semel.Operation{}, func(t *testing.T, r *rig) {
				a := begin(t, r.Engine, call("k"))
				r.faults.Next(faultstore.Apply, form, 3)
				calls := 0
				_, err := semel.Effect(t.Context(), a, "charge", func(context.Context, string) (int, error) { calls++; return 1, nil })
				must(t, err)
				must(t, a.Complete(t.Context(), semel.Result{}))
				if calls != 1 || len(a.Effects()) != 1 {
					t.Errorf("%d calls, ledger %+v", calls, a.Effects())
				}
			})
		})
		t.Run("the intent is "+string(form)+" until the attempt gives up", func(t *testing.T) {
			inBubble(t, semel.Operation{Lease: time.Hour}, func(t *testing.T, r *rig) {
				a := begin(t, r.Engine, call("k"))
				r.faults.Next(faultstore.Apply, form, 1000)
				_, err := semel.Effect(t.Context(), a, "charge", func(context.Context, string) (int, error) {
					t.Error("called without a durable intent")
					return 0, nil
				})
				wantCode(t, err, semel.CodeUnknown)
				r.faults.Heal()
				// It was never called, so nothing forbids to run again.
				must(t, a.Abort(t.Context(), store.Failure{}))
				rec, err := r.Lookup(t.Context(), id("k"))
				must(t, err)
				for _, ef := range rec.Effects {
					if ef.State != store.EffectRefuted {
						t.Errorf("the ledger says %+v", ef)
					}
				}
				if rec.State != semel.Failed || rec.Disposition != semel.DispositionAborted {
					t.Errorf("%s %s", rec.State, rec.Disposition)
				}
			})
		})
		t.Run("the result is "+string(form)+" until the attempt gives up", func(t *testing.T) {
			inBubble(t, semel.Operation{Lease: time.Hour}, func(t *testing.T, r *rig) {
				_, err := r.Do(t.Context(), call("k"), func(ctx context.Context, a semel.Execution) (semel.Result, error) {
					_, err := semel.Effect(ctx, a, "charge", func(context.Context, string) (int, error) {
						r.faults.Next(faultstore.Apply, form, 1000)
						return 1, nil
					})
					r.faults.Heal()
					return semel.Result{}, err
				})
				wantCode(t, err, semel.CodeUnknown)
				decides(t, r.Engine, call("k"), semel.Held)
			})
		})
	}
}

// A store that fails before an effect is called says nothing about the work: the call
// goes on with the next delivery, if the ledger tells all that happened.
func TestAnEffectThatTheStoreKeptFromStarting(t *testing.T) {
	clause.Proves(t, "IDS-XI.S3")
	for _, c := range []struct {
		name     string
		effects  []string
		rule     semel.AfterAbandon
		call     faultstore.Verb
		form     faultstore.Form
		mark     func(error) error
		want     store.Disposition
		decision semel.Decision
	}{
		{"the clock fails", []string{"*"}, "", faultstore.Now, faultstore.NotApplied, nil, semel.DispositionAbandoned, semel.Execute},
		{"the intent is lost", []string{"*"}, "", faultstore.Apply, faultstore.NotApplied, nil, semel.DispositionAbandoned, semel.Execute},
		{"the intent arrives", []string{"*"}, "", faultstore.Apply, faultstore.Applied, nil, semel.DispositionAbandoned, semel.Execute},
		{"the policy allows another attempt", nil, semel.RetryAbandoned, faultstore.Apply, faultstore.Applied, nil, semel.DispositionAbandoned, semel.Execute},
		{"the handler has done other things", nil, "", faultstore.Apply, faultstore.Applied, semel.Failure, semel.DispositionFailed, semel.Replay},
		{"the handler knows better", []string{"*"}, "", faultstore.Apply, faultstore.Applied, func(err error) error { return semel.Rejected("no", err) }, semel.DispositionRejected, semel.Replay},
	} {
		for _, before := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, after another effect %t", c.name, before), func(t *testing.T) {
				calls := map[string]int{}
				op := semel.Operation{Effects: c.effects, OnAbandoned: c.rule, Lease: time.Hour}
				inBubble(t, op, func(t *testing.T, r *rig) {
					run := func(fail bool) error {
						_, err := r.Do(t.Context(), call("k"), func(ctx context.Context, x semel.Execution) (semel.Result, error) {
							effect := func(name string) error {
								_, err := semel.Effect(ctx, x, name, func(context.Context, string) (int, error) { calls[name]++; return 1, nil })
								return err
							}
							if before {
								must(t, effect("charge"))
							}
							if fail {
								r.faults.Next(c.call, c.form, 1000)
							}
							err := effect("mail")
							r.faults.Heal()
							if err != nil && c.mark != nil {
								err = c.mark(err)
							}
							return data("x"), err
						})
						return err
					}
					if err := run(true); err == nil || calls["mail"] != 0 {
						t.Fatalf("got %v, %d calls", err, calls["mail"])
					}
					rec, err := r.Lookup(t.Context(), id("k"))
					if must(t, err); rec.Disposition != c.want {
						t.Errorf("the attempt is %s %s", rec.State, rec.Disposition)
					}
					for _, ef := range rec.Effects {
						if ef.State == store.EffectStarted {
							t.Errorf("left %+v", ef)
						}
					}
					if c.decision == semel.Replay {
						decides(t, r.Engine, call("k"), semel.Replay)
						return
					}
					if must(t, run(false)); calls["mail"] != 1 || before && calls["charge"] != 1 {
						t.Errorf("called %v", calls)
					}
				})
			})
		}
	}
}
