package benchstore

import (
	"math/bits"
	"time"
)

// histogram counts durations in buckets whose width grows with the value: 64
// buckets per power of two, so a quantile is at most 1.6 % above the true value.
// The zero histogram is empty.
type histogram struct {
	counts [buckets]uint64
	total  uint64
	max    time.Duration
}

const (
	subBits = 6
	sub     = 1 << subBits
	// Up to 2^40 ns, which is 18 minutes; longer durations count as that.
	maxPower = 40
	buckets  = (maxPower - subBits + 1) * sub
)

func (h *histogram) add(d time.Duration) {
	h.counts[bucketOf(d)]++
	h.total++
	h.max = max(h.max, d)
}

func (h *histogram) merge(o *histogram) {
	for i, n := range o.counts {
		h.counts[i] += n
	}
	h.total += o.total
	h.max = max(h.max, o.max)
}

// quantile is the smallest duration that isn't exceeded by at least the share q of all,
// as the upper end of its bucket; zero if the histogram is empty.
func (h *histogram) quantile(q float64) time.Duration {
	if h.total == 0 {
		return 0
	}
	want := max(uint64(q*float64(h.total)+0.5), 1)
	var seen uint64
	for i, n := range h.counts {
		if seen += n; seen >= want {
			return min(upperEnd(i), h.max)
		}
	}
	return h.max
}

func bucketOf(d time.Duration) int {
	v := uint64(max(d, 0))
	if v < sub {
		return int(v)
	}
	power := bits.Len64(v) - 1
	if power >= maxPower {
		return buckets - 1
	}
	shift := power - subBits
	return (shift+1)*sub + int(v>>shift) - sub
}

// upperEnd is the largest duration that falls into bucket i.
func upperEnd(i int) time.Duration {
	if i < sub {
		return time.Duration(i)
	}
	shift := i/sub - 1
	return time.Duration(uint64(i%sub+sub+1)<<shift - 1)
}
