package semel_test

import (
	"crypto/sha256"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/clause"
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
