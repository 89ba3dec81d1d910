package gather

import "testing"

func TestItEndsWhenNobodyJoins(t *testing.T) {
	for _, c := range []struct{ joining, want uint64 }{{0, 0}, {3, 3}, {100, maxYields}} {
		var joined, looks uint64
		Until(func() uint64 {
			if looks++; looks%2 == 0 && joined < c.joining {
				joined++ // while the others ran
			}
			return joined
		})
		if joined != c.want {
			t.Errorf("%d of %d have joined, want %d", joined, c.joining, c.want)
		}
	}
}
