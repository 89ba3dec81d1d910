package enginetest

import (
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// TestAnUnprovedCaller gets nothing that is recorded, whatever that is, and executes what
// anybody may execute.
func TestAnUnprovedCaller(t *testing.T) {
	unproved := func(key, p string) semel.Call {
		c := call(key)
		c.Fingerprint, c.Unproved = payload(p), true
		return c
	}
	inBubble(t, semel.Operation{OnFailure: semel.RetryFailure}, func(t *testing.T, r *rig) {
		nothing := func(c semel.Call, want semel.Decision) {
			t.Helper()
			peeked, err := r.Internal().Peek(t.Context(), c)
			if err != nil || peeked.Decision != want {
				t.Errorf("a look: %s, %v; want %s", peeked.Decision, err, want)
			}
			ans := decides(t, r.Engine, c, want)
			if rec := ans.Record; rec.State != 0 || rec.Attempt != 0 || rec.HeldReason != "" || len(rec.Result.Data) > 0 {
				t.Errorf("%s shows %+v", want, rec)
			}
		}
		a := begin(t, r.Engine, unproved("k", "x"))
		nothing(unproved("k", "x"), semel.InFlight)
		nothing(unproved("k", "y"), semel.InFlight)
		must(t, a.Fail(t.Context(), store.Failure{Code: "500"}, semel.Result{}))
		a = begin(t, r.Engine, unproved("k", "x"))
		nothing(unproved("k", "y"), semel.InFlight)
		must(t, a.Complete(t.Context(), data("secret")))
		nothing(unproved("k", "x"), semel.OtherCaller)
		nothing(unproved("k", "y"), semel.OtherCaller)
		decides(t, r.Engine, call("k"), semel.Replay) // for who is proved

		a = begin(t, r.Engine, unproved("gone", "x"))
		a.Detach()
		<-time.After(semel.DefaultLease)
		nothing(unproved("gone", "x"), semel.OtherCaller)
		if rec, err := r.Lookup(t.Context(), id("gone")); err != nil || !rec.Held {
			t.Errorf("held %v, %v", rec.Held, err)
		}
	})
	inBubble(t, semel.Operation{Sequenced: true}, func(t *testing.T, r *rig) {
		runs(t, r.Engine, 7)
		c := numbered("k", 2)
		c.Unproved = true
		if ans := decides(t, r.Engine, c, semel.OtherCaller); ans.Record.Sequence != 0 {
			t.Errorf("it learns of number %d", ans.Record.Sequence)
		}
	})
}
