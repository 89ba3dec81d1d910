package enginetest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// later expects the refusal of a word about an attempt that isn't the newest any more.
func later(t *testing.T, err error) {
	t.Helper()
	if e := wantCode(t, err, semel.CodeIllegalTransition); !strings.Contains(e.Message, "a later attempt than the one you saw") {
		t.Error(e)
	}
}

// TestASettlementIsAboutTheAttemptThatWasSeen: what the bank says of one attempt doesn't settle
// the next, which somebody else's settlement let run meanwhile.
func TestASettlementIsAboutTheAttemptThatWasSeen(t *testing.T) {
	inBubble(t, semel.Operation{}, func(t *testing.T, r *rig) {
		held := func() semel.Record {
			must(t, begin(t, r.Engine, call("k")).Hold(t.Context(), "no answer"))
			rec, err := r.Lookup(t.Context(), id("k"))
			must(t, err)
			return rec
		}
		aborted := func(who string, seen semel.Record) (semel.Record, error) {
			return r.Settle(t.Context(), id("k"), semel.Settlement{Outcome: semel.DispositionAborted, Who: who, Fence: seen.Fence}, "not charged")
		}
		first := held()
		_, err := aborted("ben", first)
		must(t, err)
		second := held()
		for _, s := range []semel.Settlement{
			{Outcome: semel.DispositionAborted}, {Outcome: semel.DispositionCompleted, Result: data("paid")}, {Outcome: semel.DispositionAbandoned}, {RetryAfter: 1},
		} {
			s.Who, s.Fence = "ann", first.Fence
			rec, err := r.Settle(t.Context(), id("k"), s, "not charged")
			if later(t, err); rec.Revision != second.Revision || !rec.Held {
				t.Errorf("%+v", rec)
			}
		}
		if now, err := r.Lookup(t.Context(), id("k")); err != nil || now.Revision != second.Revision {
			t.Errorf("%+v, %v", now, err)
		}
		rec, err := aborted("ann", second)
		if must(t, err); rec.Attempt != 2 || rec.Settled.Who != "ann" {
			t.Errorf("%+v", rec)
		}
	})
}

// TestAConfirmationIsOfTheCallThatWasSeen: a yes to ten doesn't confirm the ten thousand that came
// under the same key when the time of the ten was over.
func TestAConfirmationIsOfTheCallThatWasSeen(t *testing.T) {
	for _, purged := range []bool{false, true} {
		inBubble(t, confirming(semel.ConfirmationPolicy{TTL: time.Minute}), func(t *testing.T, r *rig) {
			asked := func(amount string) (semel.Call, int64) {
				c := call("k")
				c.Fingerprint = semel.FingerprintOf(semel.SchemeRaw, []byte(amount))
				ask(t, r.Engine, c)
				rec, err := r.Lookup(t.Context(), id("k"))
				must(t, err)
				return c, rec.Fence
			}
			_, ten := asked("10")
			if _, again := asked("10"); again != ten {
				t.Errorf("a further token has fence %d, not %d", again, ten)
			}
			if pass(time.Minute); purged {
				must(t, r.Purge(t.Context(), id("k"), semel.Removal{}))
			}
			large, tenThousand := asked("10000")
			_, err := r.Confirm(t.Context(), id("k"), ten, "ann", "ten is fine")
			later(t, err)
			ask(t, r.Engine, large)
			_, err = r.Confirm(t.Context(), id("k"), tenThousand, "ann", "it is a ship")
			must(t, err)
			begin(t, r.Engine, large)
		})
	}
}

// TestAnAnswerOnItsWayIsRecorded: whoever wants the reconciler to be asked now doesn't lose the
// answer to a question that is open. What somebody says meanwhile counts more.
func TestAnAnswerOnItsWayIsRecorded(t *testing.T) {
	for _, c := range []struct {
		name      string
		meanwhile semel.Settlement
		answer    semel.Settlement
		held      bool
		asked     int // until a minute later
		effect    store.EffectState
	}{
		{"asked now", semel.Settlement{RetryAfter: 1}, semel.Settlement{Outcome: semel.DispositionCompleted}, false, 1, store.EffectStarted},
		{"asked now, without an answer to the first question", semel.Settlement{RetryAfter: 1}, semel.Settlement{RetryAfter: time.Hour}, true, 2, store.EffectStarted},
		{"an operator knows an effect", semel.Settlement{Effects: []store.EffectFinding{{Name: "charge", State: store.EffectConfirmed}}}, semel.Settlement{Outcome: semel.DispositionAborted}, true, 1, store.EffectConfirmed},
	} {
		t.Run(c.name, func(t *testing.T) {
			asked := 0
			var goOn chan struct{}
			op := semel.Operation{ReconcileEvery: time.Hour, Reconcile: func(context.Context, semel.Record) (semel.Settlement, error) {
				if asked++; asked == 1 {
					<-goOn
				}
				return c.answer, nil
			}}
			inBubble(t, op, func(t *testing.T, r *rig) {
				goOn = make(chan struct{})
				a := begin(t, r.Engine, call("k"))
				for _, name := range []string{"charge", "mail"} {
					_, err := a.StartEffect(t.Context(), name)
					must(t, err)
				}
				must(t, a.Hold(t.Context(), "no answer"))
				sweep := func() {
					_, err := r.Sweep(t.Context())
					must(t, err)
					pass(time.Second)
				}
				sweep()
				_, err := r.Settle(t.Context(), id("k"), c.meanwhile, "")
				must(t, err)
				close(goOn)
				pass(time.Second)
				sweep()
				rec, err := r.Lookup(t.Context(), id("k"))
				if must(t, err); rec.Held != c.held || asked != c.asked || rec.Effects[0].State != c.effect {
					t.Errorf("asked %d times: %+v", asked, rec)
				}
			})
		})
	}
}
