package enginetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// attach expects to find the attempt that begin gave.
func attach(t *testing.T, e *semel.Engine, key string, fence int64) *semel.Attempt {
	t.Helper()
	a, err := e.Internal().Attach(t.Context(), id(key), fence)
	must(t, err)
	return a
}

// elsewhere begins a call whose holder is in another process.
func elsewhere(t *testing.T, r *rig, key string) (fence int64) {
	t.Helper()
	a := begin(t, r.Engine, call(key))
	a.Detach()
	return a.Fence()
}

func TestAttachedAttempts(t *testing.T) {
	lost := store.Failure{Code: "lost", Message: "it got lost"}
	ends := map[string]func(a *semel.Attempt, ctx context.Context) error{
		"complete": func(a *semel.Attempt, ctx context.Context) error { return a.Complete(ctx, data("done")) },
		"reject":   func(a *semel.Attempt, ctx context.Context) error { return a.Reject(ctx, lost, data("no")) },
		"fail":     func(a *semel.Attempt, ctx context.Context) error { return a.Fail(ctx, lost, semel.Result{}) },
		"abort":    func(a *semel.Attempt, ctx context.Context) error { return a.Abort(ctx, lost) },
	}
	for name, end := range ends {
		t.Run("a holder elsewhere can "+name+" its attempt, and say so again, and nothing else", func(t *testing.T) {
			inBubble(t, semel.Operation{}, func(t *testing.T, r *rig) {
				fence := elsewhere(t, r, "k")
				must(t, end(attach(t, r.second(t), "k", fence), t.Context()))
				rec, err := r.Lookup(t.Context(), id("k"))
				must(t, err)
				must(t, end(attach(t, r.Engine, "k", fence), t.Context()))
				for other, differently := range ends {
					if other != name {
						wantCode(t, differently(attach(t, r.Engine, "k", fence), t.Context()), semel.CodeAlreadyEnded)
					}
				}
				wantCode(t, attach(t, r.Engine, "k", fence).Complete(t.Context(), data("something else")), semel.CodeAlreadyEnded)
				wantCode(t, attach(t, r.Engine, "k", fence).Renew(t.Context()), semel.CodeAlreadyEnded)
				again, err := r.Lookup(t.Context(), id("k"))
				must(t, err)
				if again.Revision != rec.Revision || again.State != rec.State {
					t.Errorf("repeating changed the record from %+v to %+v", rec, again)
				}
			})
		})
	}
	t.Run("duplicates get what an attached attempt completed", func(t *testing.T) {
		inBubble(t, semel.Operation{}, func(t *testing.T, r *rig) {
			fence := elsewhere(t, r, "k")
			must(t, attach(t, r.Engine, "k", fence).Complete(t.Context(), data("done")))
			if ans := decides(t, r.second(t), call("k"), semel.Replay); string(ans.Record.Result.Data) != "done" {
				t.Errorf("a duplicate got %q", ans.Record.Result.Data)
			}
		})
	})
	t.Run("a fence that is not the record's has lost the lease", func(t *testing.T) {
		inBubble(t, semel.Operation{OnAbandoned: semel.RetryAbandoned}, func(t *testing.T, r *rig) {
			first := elsewhere(t, r, "k")
			for _, wrong := range []int64{first - 1, first + 1, 0, -first} {
				_, err := r.Internal().Attach(t.Context(), id("k"), wrong)
				wantCode(t, err, semel.CodeLeaseLost)
			}
			early := attach(t, r.Engine, "k", first) // attached before it is replaced
			pass(semel.DefaultLease + time.Second)
			second := elsewhere(t, r, "k")
			_, err := r.Internal().Attach(t.Context(), id("k"), first)
			wantCode(t, err, semel.CodeLeaseLost)
			wantCode(t, early.Complete(t.Context(), data("stale")), semel.CodeLeaseLost)
			must(t, attach(t, r.Engine, "k", second).Complete(t.Context(), data("done")))
		})
	})
	t.Run("a record that is not there or has expired is not found", func(t *testing.T) {
		inBubble(t, semel.Operation{Window: time.Hour}, func(t *testing.T, r *rig) {
			_, err := r.Internal().Attach(t.Context(), id("none"), 1)
			wantCode(t, err, semel.CodeNotFound)
			fence := elsewhere(t, r, "k")
			must(t, attach(t, r.Engine, "k", fence).Complete(t.Context(), data("done")))
			pass(time.Hour)
			_, err = r.Internal().Attach(t.Context(), id("k"), fence)
			wantCode(t, err, semel.CodeNotFound)
		})
	})
	t.Run("a detached attempt is not renewed here, and another is", func(t *testing.T) {
		inBubble(t, semel.Operation{}, func(t *testing.T, r *rig) {
			elsewhere(t, r, "detached")
			kept := begin(t, r.Engine, call("kept"))
			pass(semel.DefaultLease + time.Second)
			decides(t, r.Engine, call("detached"), semel.Held)
			decides(t, r.Engine, call("kept"), semel.InFlight)
			must(t, kept.Complete(t.Context(), data("done")))
		})
	})
	t.Run("renewing by attaching extends the lease, once and not for good", func(t *testing.T) {
		inBubble(t, semel.Operation{}, func(t *testing.T, r *rig) {
			fence := elsewhere(t, r, "k")
			other := r.second(t)
			for range 10 {
				pass(semel.DefaultLease * 2 / 3)
				a := attach(t, r.Engine, "k", fence)
				must(t, a.Renew(t.Context()))
				if left := a.Record().LeaseUntil.Sub(a.Record().UpdatedAt); left != semel.DefaultLease {
					t.Fatalf("the lease ends %v after it was renewed", left)
				}
				decides(t, other, call("k"), semel.InFlight)
			}
			pass(semel.DefaultLease)
			decides(t, other, call("k"), semel.Held)
		})
	})
	t.Run("its holder may complete a record that is held by now, and may not renew it", func(t *testing.T) {
		inBubble(t, semel.Operation{}, func(t *testing.T, r *rig) {
			fence := elsewhere(t, r, "k")
			pass(semel.DefaultLease)
			if n, err := r.Sweep(t.Context()); n.Held != 1 || err != nil {
				t.Fatalf("%+v, %v", n, err)
			}
			wantCode(t, attach(t, r.Engine, "k", fence).Renew(t.Context()), semel.CodeLeaseLost)
			must(t, attach(t, r.Engine, "k", fence).Complete(t.Context(), data("done")))
			decides(t, r.Engine, call("k"), semel.Replay)
		})
	})
	t.Run("a holder elsewhere holds the record and an operator decides", func(t *testing.T) {
		inBubble(t, semel.Operation{}, func(t *testing.T, r *rig) {
			fence := elsewhere(t, r, "k")
			must(t, attach(t, r.Engine, "k", fence).Hold(t.Context(), "no answer"))
			must(t, attach(t, r.Engine, "k", fence).Hold(t.Context(), "no answer"))
			if ans := decides(t, r.Engine, call("k"), semel.Held); ans.Record.HeldReason != "no answer" {
				t.Errorf("it is held because of %q", ans.Record.HeldReason)
			}
		})
	})
	t.Run("an attempt that has ended has a cancelled context", func(t *testing.T) {
		inBubble(t, semel.Operation{}, func(t *testing.T, r *rig) {
			fence := elsewhere(t, r, "k")
			a := attach(t, r.Engine, "k", fence)
			if a.Context().Err() != nil {
				t.Error("it is cancelled before its end")
			}
			must(t, a.Complete(t.Context(), data("done")))
			if a.Context().Err() == nil || attach(t, r.Engine, "k", fence).Context().Err() == nil {
				t.Error("it is not cancelled after its end")
			}
		})
	})
}

// TestEffectsOfAttachedAttempts: each request of a holder elsewhere attaches anew.
func TestEffectsOfAttachedAttempts(t *testing.T) {
	confirmed := store.EffectFinding{Name: "charge", State: store.EffectConfirmed, Result: data(`"ch_1"`)}
	refuted := store.EffectFinding{Name: "charge", State: store.EffectRefuted}
	refused := store.EffectFinding{Name: "charge", State: store.EffectRefuted, Failure: &store.Failure{Code: "declined", Message: "no funds"}}
	withCharge := func(t *testing.T, body func(t *testing.T, r *rig, at func() *semel.Attempt)) {
		t.Helper()
		inBubble(t, semel.Operation{Effects: []string{"charge", "mail"}, MaxResult: 100}, func(t *testing.T, r *rig) {
			fence := elsewhere(t, r, "k")
			body(t, r, func() *semel.Attempt { return attach(t, r.Engine, "k", fence) })
		})
	}
	start := func(t *testing.T, a *semel.Attempt) store.EffectRecord {
		t.Helper()
		ef, err := a.StartEffect(t.Context(), "charge")
		must(t, err)
		if ef.State != store.EffectStarted || ef.Key == "" || ef.Name != "charge" || ef.Fence != a.Fence() {
			t.Fatalf("started %+v", ef)
		}
		return ef
	}
	unknown := func(t *testing.T, err error) {
		t.Helper()
		wantCode(t, err, semel.CodeEffectUnknown)
	}
	t.Run("an effect that was confirmed is not called again, and its result is there", func(t *testing.T) {
		withCharge(t, func(t *testing.T, r *rig, at func() *semel.Attempt) {
			started := start(t, at())
			must(t, at().SettleEffect(t.Context(), confirmed))
			ef, err := at().StartEffect(t.Context(), "charge")
			must(t, err)
			if ef.State != store.EffectConfirmed || string(ef.Result.Data) != `"ch_1"` || ef.Key != started.Key {
				t.Errorf("got %+v", ef)
			}
			ef, err = at().RestartEffect(t.Context(), "charge")
			must(t, err)
			if ef.State != store.EffectConfirmed {
				t.Errorf("got %+v", ef)
			}
		})
	})
	t.Run("a started effect is unknown to who asks again, unless he says that he has not called", func(t *testing.T) {
		withCharge(t, func(t *testing.T, r *rig, at func() *semel.Attempt) {
			started := start(t, at())
			ef, err := at().StartEffect(t.Context(), "charge")
			unknown(t, err)
			if ef.Key != started.Key {
				t.Errorf("an unknown effect has key %q", ef.Key)
			}
			before := at().Record().Revision
			ef, err = at().RestartEffect(t.Context(), "charge")
			must(t, err)
			if ef.State != store.EffectStarted || ef.Key != started.Key || ef.StartedAt != started.StartedAt {
				t.Errorf("got %+v", ef)
			}
			if at().Record().Revision == before {
				t.Error("the right to make the call was given again without a write")
			}
		})
	})
	t.Run("whoever made no call yet may not make it once the record is held, and has a whole lease otherwise", func(t *testing.T) {
		withCharge(t, func(t *testing.T, r *rig, at func() *semel.Attempt) {
			start(t, at())
			pass(semel.DefaultLease / 2)
			_, err := at().RestartEffect(t.Context(), "charge")
			must(t, err)
			pass(semel.DefaultLease - time.Millisecond)
			decides(t, r.Engine, call("k"), semel.InFlight)
			pass(time.Millisecond)
			decides(t, r.Engine, call("k"), semel.Held)
			_, err = at().RestartEffect(t.Context(), "charge")
			wantCode(t, err, semel.CodeLeaseLost)
		})
	})
	t.Run("an effect that did not happen may be started again under the same key", func(t *testing.T) {
		withCharge(t, func(t *testing.T, r *rig, at func() *semel.Attempt) {
			started := start(t, at())
			must(t, at().SettleEffect(t.Context(), refuted))
			if again := start(t, at()); again.Key != started.Key {
				t.Errorf("the key was %q and is %q", started.Key, again.Key)
			}
			if n := len(at().Effects()); n != 1 {
				t.Errorf("the ledger has %d effects", n)
			}
		})
	})
	t.Run("an effect that was refused for good stays refused", func(t *testing.T) {
		withCharge(t, func(t *testing.T, r *rig, at func() *semel.Attempt) {
			start(t, at())
			must(t, at().SettleEffect(t.Context(), refused))
			for _, again := range []func(context.Context, string) (store.EffectRecord, error){at().StartEffect, at().RestartEffect} {
				if ef, err := again(t.Context(), "charge"); err == nil || err.Error() != "no funds" || ef.Failure == nil || ef.Failure.Code != "declined" {
					t.Errorf("got %+v, %v", ef, err)
				}
			}
		})
	})
	t.Run("settling in the same way again is harmless, and in another way is refused", func(t *testing.T) {
		all := map[string]store.EffectFinding{
			"confirmed": confirmed, "refuted": refuted, "refused": refused,
			"confirmed with another result": {Name: "charge", State: store.EffectConfirmed, Result: data("2")},
			"refused with other words":      {Name: "charge", State: store.EffectRefuted, Failure: &store.Failure{Code: "declined"}},
		}
		for name, first := range all {
			withCharge(t, func(t *testing.T, r *rig, at func() *semel.Attempt) {
				start(t, at())
				must(t, at().SettleEffect(t.Context(), first))
				before := at().Record().Revision
				for other, next := range all {
					err := at().SettleEffect(t.Context(), next)
					if other == name && err != nil {
						t.Errorf("%s twice gives %v", name, err)
					} else if other != name && !errors.Is(err, &semel.Error{Code: semel.CodeAlreadyEnded}) {
						t.Errorf("%s after %s gives %v", other, name, err)
					}
				}
				if at().Record().Revision != before {
					t.Error("settling again changed the record")
				}
			})
		}
	})
	t.Run("what makes no sense is refused and changes nothing", func(t *testing.T) {
		withCharge(t, func(t *testing.T, r *rig, at func() *semel.Attempt) {
			before := at().Record().Revision
			wantCode(t, at().SettleEffect(t.Context(), confirmed), semel.CodeInvalidCall) // never started
			wantCode(t, at().SettleEffect(t.Context(), store.EffectFinding{Name: "charge", State: store.EffectStarted}), semel.CodeInvalidCall)
			wantCode(t, at().SettleEffect(t.Context(), store.EffectFinding{Name: "charge"}), semel.CodeInvalidCall)
			for _, name := range []string{"", "refund", "a\x00b", string(make([]byte, 300))} {
				_, err := at().StartEffect(t.Context(), name)
				wantCode(t, err, semel.CodeInvalidCall)
				_, err = at().RestartEffect(t.Context(), name)
				wantCode(t, err, semel.CodeInvalidCall)
			}
			if at().Record().Revision != before {
				t.Error("the record was changed")
			}
		})
	})
	t.Run("a result that is too large is not kept, and the effect is not called again", func(t *testing.T) {
		withCharge(t, func(t *testing.T, r *rig, at func() *semel.Attempt) {
			start(t, at())
			large := store.EffectFinding{Name: "charge", State: store.EffectConfirmed, Result: semel.Result{Data: make([]byte, 101)}}
			must(t, at().SettleEffect(t.Context(), large))
			must(t, at().SettleEffect(t.Context(), large))
			_, err := at().StartEffect(t.Context(), "charge")
			wantCode(t, err, semel.CodeResultNotKept)
		})
	})
	t.Run("an attempt that has ended has no effects to start or settle", func(t *testing.T) {
		withCharge(t, func(t *testing.T, r *rig, at func() *semel.Attempt) {
			start(t, at())
			must(t, at().Complete(t.Context(), data("done")))
			_, err := at().StartEffect(t.Context(), "mail")
			wantCode(t, err, semel.CodeAlreadyEnded)
			wantCode(t, at().SettleEffect(t.Context(), confirmed), semel.CodeAlreadyEnded)
		})
	})
	t.Run("a held record has no effects to start, and its holder may still settle one", func(t *testing.T) {
		withCharge(t, func(t *testing.T, r *rig, at func() *semel.Attempt) {
			start(t, at())
			pass(semel.DefaultLease)
			decides(t, r.Engine, call("k"), semel.Held)
			_, err := at().StartEffect(t.Context(), "mail")
			wantCode(t, err, semel.CodeLeaseLost)
			must(t, at().SettleEffect(t.Context(), confirmed))
			if rec := at().Record(); !rec.Held || rec.Effects[0].State != store.EffectConfirmed {
				t.Errorf("the record is %+v", rec)
			}
		})
	})
}
