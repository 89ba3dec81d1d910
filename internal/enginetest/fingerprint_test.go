package enginetest

import (
	"crypto/sha256"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
)

func TestEveryByteOfAFingerprintIsCompared(t *testing.T) {
	clause.Proves(t, "CORE-ID.2", "IDS-VIII.5")
	sum := sha256.Sum256([]byte("x"))
	mine := call("k")
	mine.Fingerprint = store.NewFingerprint(semel.SchemeRaw, sum)
	inBubble(t, semel.Operation{}, func(t *testing.T, r *rig) {
		compare := func(when string, same semel.Decision) {
			t.Helper()
			other := mine
			for i := range sum {
				near := sum
				near[i] ^= 1
				other.Fingerprint = store.NewFingerprint(semel.SchemeRaw, near)
				if ans, err := r.Begin(t.Context(), other); err != nil || ans.Decision != semel.Conflict {
					t.Fatalf("%s, another byte %d: %s, %v", when, i, ans.Decision, err)
				}
			}
			other.Fingerprint = store.NewFingerprint(semel.SchemeJSON, sum)
			if ans, err := r.Begin(t.Context(), other); err != nil || ans.Decision != semel.Conflict {
				t.Fatalf("%s, another scheme: %s, %v", when, ans.Decision, err)
			}
			decides(t, r.Engine, mine, same)
		}
		a := begin(t, r.Engine, mine)
		compare("in flight", semel.InFlight)
		must(t, a.Hold(t.Context(), ""))
		compare("held", semel.Held)
		_, err := r.Settle(t.Context(), id("k"), semel.Settlement{Outcome: semel.DispositionCompleted, Result: data("done")}, "")
		must(t, err)
		compare("completed", semel.Replay)
	})
}

// A record keeps the fingerprint that it was made with, and is compared by that.
func TestARecordIsComparedByItsOwnFingerprint(t *testing.T) {
	clause.Proves(t, "CORE-ID.2")
	former, later, changed := call("k"), call("k"), call("k")
	former.Fingerprint = semel.FingerprintOf(semel.SchemeRaw, []byte("paid"))
	later.Fingerprint = semel.FingerprintOf(semel.SchemeJSON, []byte("paid"))
	later.SamePayload = func(fp semel.Fingerprint) bool { return fp == former.Fingerprint }
	changed.Fingerprint = semel.FingerprintOf(semel.SchemeJSON, []byte("refunded"))
	changed.SamePayload = func(fp semel.Fingerprint) bool {
		return fp == semel.FingerprintOf(semel.SchemeRaw, []byte("refunded"))
	}
	inBubble(t, semel.Operation{OnFailure: semel.RetryFailure}, func(t *testing.T, r *rig) {
		must(t, begin(t, r.Engine, former).Fail(t.Context(), store.Failure{Message: "later"}, semel.Result{}))
		decides(t, r.Engine, changed, semel.Conflict)
		again := begin(t, r.Engine, later) // the next attempt
		if got := again.Record().Fingerprint; got != former.Fingerprint {
			t.Errorf("the record has the fingerprint %v now", got)
		}
		must(t, again.Complete(t.Context(), data("done")))
		decides(t, r.Engine, later, semel.Replay)
		decides(t, r.Engine, former, semel.Replay)
		decides(t, r.Engine, changed, semel.Conflict)
	})
}

// TestNoPayloadIsAPayloadOfItsOwn: a retry without one doesn't match a call that had one, and
// the reverse.
func TestNoPayloadIsAPayloadOfItsOwn(t *testing.T) {
	clause.Proves(t, "CORE-ID.4")
	with, without := call("k"), call("k")
	with.Fingerprint, without.Fingerprint = store.FingerprintOf(semel.SchemeRaw, []byte("x")), store.Fingerprint{}
	for name, c := range map[string][2]semel.Call{"the first had one": {with, without}, "the first had none": {without, with}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, semel.Operation{}, func(t *testing.T, r *rig) {
				a := begin(t, r.Engine, c[0])
				decides(t, r.Engine, c[1], semel.Conflict)
				must(t, a.Complete(t.Context(), data("done")))
				decides(t, r.Engine, c[1], semel.Conflict)
				decides(t, r.Engine, c[0], semel.Replay)
			})
		})
	}
}
