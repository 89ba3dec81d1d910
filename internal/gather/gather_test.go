package gather

import "testing"

func TestItEndsWhenNobodyJoins(t *testing.T) {
	for _, c := range []struct{ joining, want uint64 }{{0, 0}, {3, 3}, {100, most}} {
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

func TestACrowdFades(t *testing.T) {
	var c Crowd
	for _, n := range []int{0, 1} {
		if c.Note(n); c.Several() {
			t.Errorf("a batch of %d is several", n)
		}
	}
	c.Note(30)
	small := 0
	for ; c.Several(); small++ {
		c.Note(1)
	}
	if small < 5 || small > 30 {
		t.Errorf("after a batch of 30 it takes %d of one", small)
	}
}
