// Package histogram keeps how long many operations took, in little memory.
package histogram

import (
	"math/bits"
	"time"
)

// Histogram counts durations in buckets whose width grows with the value: 64
// buckets per power of two, so a quantile is at most 1.6 % above the true value.
// The zero Histogram is empty.
type Histogram struct {
	Counts [Buckets]uint64
	// Total is the sum of Counts, and Max the longest duration.
	Total uint64
	Max   time.Duration
}

const (
	subBits = 6
	sub     = 1 << subBits
	// Up to 2^40 ns, which is 18 minutes; longer durations count as that.
	maxPower = 40
	// Buckets is how many there are.
	Buckets = (maxPower - subBits + 1) * sub
)

// Add counts a duration.
func (h *Histogram) Add(d time.Duration) {
	h.Counts[bucketOf(d)]++
	h.Total++
	h.Max = max(h.Max, d)
}

// Merge adds what another one has counted.
func (h *Histogram) Merge(o *Histogram) {
	for i, n := range o.Counts {
		h.Counts[i] += n
	}
	h.Total += o.Total
	h.Max = max(h.Max, o.Max)
}

// Quantile is the smallest duration that isn't exceeded by at least the share q of all,
// as the upper end of its bucket; zero if the histogram is empty.
func (h *Histogram) Quantile(q float64) time.Duration {
	if h.Total == 0 {
		return 0
	}
	want := max(uint64(q*float64(h.Total)+0.5), 1)
	var seen uint64
	for i, n := range h.Counts {
		if seen += n; seen >= want {
			return min(upperEnd(i), h.Max)
		}
	}
	return h.Max
}

// Latency is the distribution of how long single operations took, in
// microseconds, at most 1.6 % too high.
type Latency struct {
	P50 float64 `json:"p50_us"`
	P90 float64 `json:"p90_us"`
	P99 float64 `json:"p99_us"`
	Max float64 `json:"max_us"`
}

// Latency sums the histogram up.
func (h *Histogram) Latency() Latency {
	us := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
	return Latency{P50: us(h.Quantile(0.50)), P90: us(h.Quantile(0.90)), P99: us(h.Quantile(0.99)), Max: us(h.Max)}
}

func bucketOf(d time.Duration) int {
	v := uint64(max(d, 0))
	if v < sub {
		return int(v)
	}
	power := bits.Len64(v) - 1
	if power >= maxPower {
		return Buckets - 1
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
