package histogram

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestHistogram(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	var one, two, h Histogram
	var all []time.Duration
	for i := range 20_000 {
		d := time.Duration(rng.Int64N(1 << rng.IntN(36)))
		all = append(all, d)
		if i%2 == 0 {
			one.Add(d)
		} else {
			two.Add(d)
		}
	}
	h.Merge(&one)
	h.Merge(&two)
	slices.Sort(all)
	t.Run("a quantile is at most 1.6 % above the true value", func(t *testing.T) {
		for _, q := range []float64{0.01, 0.25, 0.5, 0.9, 0.99, 0.999, 1} {
			want := all[max(int(q*float64(len(all))+0.5), 1)-1]
			if got := h.Quantile(q); got < want || float64(got) > float64(want)*1.016+1 {
				t.Errorf("quantile(%v) = %v, want %v", q, got, want)
			}
		}
	})
	t.Run("the maximum and the total are exact", func(t *testing.T) {
		if h.Max != all[len(all)-1] || h.Total != uint64(len(all)) || h.Quantile(1) != h.Max {
			t.Errorf("max = %v of %d, quantile(1) = %v, want %v of %d", h.Max, h.Total, h.Quantile(1), all[len(all)-1], len(all))
		}
	})
	t.Run("every duration falls into the bucket that ends after it", func(t *testing.T) {
		for _, d := range []time.Duration{0, 1, 63, 64, 65, 127, 128, 1000, time.Second, 1<<40 - 1} {
			i := bucketOf(d)
			if upperEnd(i) < d || i > 0 && upperEnd(i-1) >= d {
				t.Errorf("%d is in bucket %d, which ends at %d after %d", d, i, upperEnd(i), upperEnd(i-1))
			}
		}
	})
	t.Run("what is out of range is counted at the ends", func(t *testing.T) {
		var h Histogram
		h.Add(-1)
		h.Add(time.Hour)
		if h.Quantile(0.1) != 0 || h.Max != time.Hour || bucketOf(time.Hour) != Buckets-1 {
			t.Errorf("quantile = %v, max = %v", h.Quantile(0.1), h.Max)
		}
	})
	t.Run("an empty one has no quantiles", func(t *testing.T) {
		if q := new(Histogram).Quantile(0.5); q != 0 {
			t.Errorf("quantile = %v", q)
		}
	})
}
