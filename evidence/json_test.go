package evidence

import (
	"encoding/json"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/semelhq/semel/internal/canon"
	"github.com/semelhq/semel/store"
)

// What is written by hand is what encoding/json and the canonical form make of the same
// value, whatever is in it.
func TestLeavesAndOpeningsAreCanonicalJSON(t *testing.T) {
	text := rapid.OneOf(rapid.Just(""), rapid.String(), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }))
	check := func(t *rapid.T, v any, got []byte) {
		plain, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		want, err := canon.Canonicalize(plain, canon.JCS)
		if err != nil || string(got) != string(want) {
			t.Fatalf("it is %s, not %s, %v", got, want, err)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		next := func() string { return text.Draw(t, "text") }
		at := rapid.OneOf(rapid.Int64(), rapid.Just(int64(math.MinInt64)), rapid.Map(rapid.Int64Range(-4e9, 4e9), func(n int64) int64 { return n * 1e9 })).Draw(t, "nanoseconds")
		p := Payload{
			Attempt: rapid.IntRange(0, 1<<50).Draw(t, "attempt"), Change: store.Change(next()), Decision: next(), Disposition: next(), Durability: store.Level(next()),
			Fence: next(), Fingerprint: next(), OutcomeRef: next(), Presented: next(), Reason: next(), State: next(), By: next(), Content: next(), Record: next(),
		}
		if at != math.MinInt64 {
			p.KeptUntil = store.Instant(at).Time()
		}
		p.Executed = rapid.SampledFrom([]*bool{nil, executed, notExecuted}).Draw(t, "executed")
		p = rapid.SampledFrom([]Payload{p, {}}).Draw(t, "payload")
		a := Artifact{"ev_" + next(), Type("t" + next()), "c" + next(), store.Instant(at).Time(), p, "tn_" + next(), 1}
		check(t, a, a.appendJSON(nil))
		o := Opening{next(), next(), next(), next(), next(), next(), next(), next(), next(), next(), next(), next(), next(), next(), next(), next(), next(), next()}
		check(t, o, o.appendJSON(nil))
	})
}
