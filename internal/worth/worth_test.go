package worth

import (
	"sync/atomic"
	"testing"
	"time"
)

func TestShow(t *testing.T) {
	var with, without atomic.Int64
	var numbers [2]atomic.Int64
	step := func(side int, calls *atomic.Int64, takes time.Duration) func(int64) {
		return func(n int64) {
			calls.Add(1)
			numbers[side].Add(n)
			<-time.After(takes)
		}
	}
	r := testing.Benchmark(func(b *testing.B) {
		Show(b, 2, step(0, &with, time.Millisecond), step(1, &without, 50*time.Millisecond))
	})
	if r.Extra["worth"] <= 1 || r.Extra["with/s"] <= r.Extra["without/s"] {
		t.Errorf("a step that takes a fiftieth of the time has %v", r.Extra)
	}
	if without.Load() == 0 || numbers[1].Load() < without.Load() {
		t.Errorf("%d steps have the numbers of %d", without.Load(), numbers[1].Load())
	}
}
