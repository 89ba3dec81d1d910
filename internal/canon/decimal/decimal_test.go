package decimal

import (
	"encoding/json"
	"math"
	"testing"

	"pgregory.net/rapid"
)

func TestAppend(t *testing.T) {
	for want, c := range map[string]struct {
		digits string
		point  int
	}{
		"100": {"1", 3}, "12.5": {"125", 2}, "0.000001": {"1", -5}, "1e-7": {"1", -6}, "100000000000000000000": {"1", MaxPlain},
		"1e+21": {"1", MaxPlain + 1}, "1.25e+30": {"125", 31}, "0.125": {"125", 0},
	} {
		if got := string(Append(nil, []byte(c.digits), c.point)); got != want {
			t.Errorf("%s at %d: %s, want %s", c.digits, c.point, got, want)
		}
	}
}

// A number in this layout is the same number.
func TestAppendFloat(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := rapid.Float64Range(math.SmallestNonzeroFloat64, math.MaxFloat64).Draw(t, "number")
		var back float64
		if text := AppendFloat(nil, f); json.Unmarshal(text, &back) != nil || back != f {
			t.Fatalf("%v is %s", f, text)
		}
	})
}
