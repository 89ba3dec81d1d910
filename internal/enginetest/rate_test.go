package enginetest

import (
	"math"
	"testing"

	"github.com/semelhq/semel"
)

func TestRatesThatTakeTooLongToRefillAreRefused(t *testing.T) {
	const year = 365 * 24 * 3600
	for _, c := range []struct {
		name string
		rate semel.Rate
		ok   bool
	}{
		{"one in ten years", semel.Rate{PerSecond: 1.0 / (10 * year), Burst: 1}, true},
		{"one in a thousand years", semel.Rate{PerSecond: 1.0 / (1000 * year), Burst: 1}, false},
		{"10,000, then one in twelve days", semel.Rate{PerSecond: 1.0 / (12 * 24 * 3600), Burst: 10_000}, false},
		{"the smallest rate there is", semel.Rate{PerSecond: math.SmallestNonzeroFloat64, Burst: 1}, false},
		{"the largest burst there is", semel.Rate{PerSecond: 1_000_000, Burst: math.MaxInt}, false},
		{"the largest rate", semel.Rate{PerSecond: 1_000_000, Burst: 10 * year * 1_000_000}, true},
		{"a larger one", semel.Rate{PerSecond: math.Nextafter(1_000_000, math.Inf(1)), Burst: 1}, false},
		{"no number", semel.Rate{PerSecond: math.NaN(), Burst: 1}, false},
		{"no limit", semel.Rate{}, true},
	} {
		if err := (&semel.Operation{Name: "op", PerRecord: c.rate}).Validate(); (err == nil) != c.ok {
			t.Errorf("%s: got %v", c.name, err)
		}
	}
}
