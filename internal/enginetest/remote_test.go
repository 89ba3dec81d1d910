package enginetest

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// attachTwice is two requests of one remote holder that have read the record
// before either writes.
func attachTwice(t *testing.T, r *rig) (a, b *semel.Attempt) {
	t.Helper()
	held := begin(t, r.Engine, call("k"))
	held.Detach()
	var err error
	a, err = r.Internal().Attach(t.Context(), held.ID(), held.Fence())
	must(t, err)
	b, err = r.Internal().Attach(t.Context(), held.ID(), held.Fence())
	must(t, err)
	return a, b
}

func TestRemoteHolderAsksTwiceAtOnce(t *testing.T) {
	t.Run("one of two may make the call", func(t *testing.T) {
		inBubble(t, semel.Operation{}, func(t *testing.T, r *rig) {
			a, b := attachTwice(t, r)
			_, err := a.StartEffect(t.Context(), "e")
			must(t, err)
			_, err = b.StartEffect(t.Context(), "e")
			wantCode(t, err, semel.CodeEffectUnknown)
			_, err = b.RestartEffect(t.Context(), "e")
			must(t, err)
		})
	})
	t.Run("a refusal that the other has recorded is not started again", func(t *testing.T) {
		inBubble(t, semel.Operation{}, func(t *testing.T, r *rig) {
			a, b := attachTwice(t, r)
			_, err := a.StartEffect(t.Context(), "e")
			must(t, err)
			must(t, a.SettleEffect(t.Context(), store.EffectFinding{Name: "e", State: store.EffectRefuted, Failure: &store.Failure{Code: "no"}}))
			_, err = b.StartEffect(t.Context(), "e")
			wantCode(t, err, semel.CodeEffectUnknown)
		})
	})
	t.Run("what did not happen may be started by the other", func(t *testing.T) {
		inBubble(t, semel.Operation{}, func(t *testing.T, r *rig) {
			a, b := attachTwice(t, r)
			_, err := a.StartEffect(t.Context(), "e")
			must(t, err)
			must(t, a.SettleEffect(t.Context(), store.EffectFinding{Name: "e", State: store.EffectRefuted}))
			_, err = b.StartEffect(t.Context(), "e")
			must(t, err)
		})
	})
	t.Run("of two findings the first counts", func(t *testing.T) {
		inBubble(t, semel.Operation{}, func(t *testing.T, r *rig) {
			held := begin(t, r.Engine, call("k"))
			_, err := held.StartEffect(t.Context(), "e")
			must(t, err)
			held.Detach()
			a, err := r.Internal().Attach(t.Context(), held.ID(), held.Fence())
			must(t, err)
			b, err := r.Internal().Attach(t.Context(), held.ID(), held.Fence())
			must(t, err)
			same := store.EffectFinding{Name: "e", State: store.EffectConfirmed, Result: data("1")}
			must(t, a.SettleEffect(t.Context(), same))
			err = b.SettleEffect(t.Context(), store.EffectFinding{Name: "e", State: store.EffectConfirmed, Result: data("2")})
			wantCode(t, err, semel.CodeAlreadyEnded)
			must(t, b.SettleEffect(t.Context(), same))
			if got := b.Effects()[0].Result.Data; string(got) != "1" {
				t.Errorf("the result is %s", got)
			}
		})
	})
}

func TestRemoteReadOnlyCall(t *testing.T) {
	inBubble(t, semel.Operation{Class: semel.ReadOnly}, func(t *testing.T, r *rig) {
		a := begin(t, r.Engine, call("k"))
		a.Detach()
		b, err := r.Internal().Attach(t.Context(), a.ID(), a.Fence())
		must(t, err)
		if b.Fence() != a.Fence() {
			t.Errorf("fence %d instead of %d", b.Fence(), a.Fence())
		}
		must(t, b.Renew(t.Context()))
		must(t, b.Complete(t.Context(), data("1")))
		must(t, b.Complete(t.Context(), data("1")))
		wantCode(t, b.Complete(t.Context(), data("2")), semel.CodeAlreadyEnded)
		if r.store.Len() != 0 {
			t.Error("something was recorded")
		}
	})
}

func TestAwait(t *testing.T) {
	t.Run("it returns with the outcome, at once", func(t *testing.T) {
		inBubble(t, semel.Operation{}, func(t *testing.T, r *rig) {
			a := begin(t, r.Engine, call("k"))
			start := time.Now()
			time.AfterFunc(3*time.Second, func() { must(t, a.Complete(context.Background(), data("1"))) })
			rec, err := r.Internal().Await(t.Context(), id("k"), 20*time.Second)
			must(t, err)
			if rec.State != semel.Completed || time.Since(start) != 3*time.Second {
				t.Errorf("%v after %v", rec.State, time.Since(start))
			}
			if rec, err = r.Internal().Await(t.Context(), id("k"), 20*time.Second); err != nil || rec.State != semel.Completed || time.Since(start) != 3*time.Second {
				t.Errorf("%v, %v after %v", rec.State, err, time.Since(start))
			}
		})
	})
	t.Run("the outcome of another engine is noticed", func(t *testing.T) {
		inBubble(t, semel.Operation{}, func(t *testing.T, r *rig) {
			a := begin(t, r.second(t), call("k"))
			time.AfterFunc(3*time.Second, func() { must(t, a.Complete(context.Background(), data("1"))) })
			rec, err := r.Internal().Await(t.Context(), id("k"), 20*time.Second)
			if err != nil || rec.State != semel.Completed {
				t.Errorf("%v, %v", rec.State, err)
			}
		})
	})
	t.Run("it returns what there is when the time is over, which the operation bounds", func(t *testing.T) {
		inBubble(t, semel.Operation{MaxWait: 2 * time.Second}, func(t *testing.T, r *rig) {
			a := begin(t, r.Engine, call("k"))
			start := time.Now()
			rec, err := r.Internal().Await(t.Context(), id("k"), time.Hour)
			if err != nil || rec.State != semel.Processing || time.Since(start) != 2*time.Second {
				t.Errorf("%v, %v after %v", rec.State, err, time.Since(start))
			}
			must(t, a.Complete(t.Context(), data("1")))
		})
	})
	t.Run("an attempt whose lease has ended is waited for until policy has settled it", func(t *testing.T) {
		inBubble(t, semel.Operation{Lease: time.Second}, func(t *testing.T, r *rig) {
			a := begin(t, r.Engine, call("k"))
			a.Detach()
			start := time.Now()
			time.AfterFunc(5*time.Second, func() {
				_, err := r.Sweep(context.Background())
				must(t, err)
			})
			rec, err := r.Internal().Await(t.Context(), id("k"), 20*time.Second)
			if err != nil || !rec.Held || time.Since(start) != 5*time.Second {
				t.Errorf("held %q, %v after %v", rec.HeldReason, err, time.Since(start))
			}
		})
	})
	t.Run("it ends with its context, and where there is no record", func(t *testing.T) {
		inBubble(t, semel.Operation{}, func(t *testing.T, r *rig) {
			_, err := r.Internal().Await(t.Context(), id("k"), time.Second)
			wantCode(t, err, semel.CodeNotFound)
			a := begin(t, r.Engine, call("k"))
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			if _, err := r.Internal().Await(ctx, id("k"), time.Minute); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			must(t, a.Complete(t.Context(), data("1")))
			synctest.Wait()
		})
	})
}
