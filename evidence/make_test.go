package evidence

import (
	"math"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"pgregory.net/rapid"
)

func TestTimesAreWrittenAsRFC3339(t *testing.T) {
	var d dates
	rapid.Check(t, func(t *rapid.T) {
		at := semel.Instant(rapid.OneOf(
			rapid.Int64Range(0, 4e18), rapid.Int64(), rapid.Just(int64(math.MinInt64)),
			rapid.Map(rapid.Int64Range(-4e9, 4e9), func(n int64) int64 { return n * 1e9 }),
			rapid.Map(rapid.Int64Range(0, 4e12), func(n int64) int64 { return n * 1e6 }),
		).Draw(t, "nanoseconds"))
		if got, want := string(d.append(nil, at)), at.Time().Format(time.RFC3339Nano); got != want {
			t.Fatalf("%d is written as %s, not %s", at, got, want)
		}
	})
}
