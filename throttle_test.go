package semel

import (
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/semelhq/semel/store"
	"pgregory.net/rapid"
)

// drawRate draws rates over the whole range that an operation accepts, with as many
// of each order of magnitude.
func drawRate() *rapid.Generator[Rate] {
	return rapid.Custom(func(t *rapid.T) Rate {
		burst := math.Pow(10, rapid.Float64Range(0, 15).Draw(t, "decimal logarithm of Burst"))
		perSecond := math.Pow(10, rapid.Float64Range(-9, 6).Draw(t, "decimal logarithm of PerSecond"))
		return Rate{PerSecond: min(perSecond, maxRate), Burst: int(burst)}
	}).Filter(func(r Rate) bool { return rateOperation(r).Validate() == nil })
}

func rateOperation(r Rate) Operation { return Operation{Name: "op", PerRecord: r} }

var bucketOfTest = bucketName{kind: "record", id: ID{Operation: "op", Key: "k"}}

// theYear is some time by which a store's clock may count.
func theYear(year int) store.Instant {
	return store.InstantOf(time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC))
}

func TestEveryAcceptedRateThrottles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRate().Draw(t, "rate")
		now := theYear(rapid.IntRange(1970, 2200).Draw(t, "year")) + 1
		perToken := float64(time.Second) / r.PerSecond // nanoseconds
		var th throttle
		burst := min(r.Burst, 2000)
		for i := range burst {
			if d := th.take(r, bucketOfTest, now); d != 0 {
				t.Fatalf("token %d of %d at once: told to wait for %v", i+1, r.Burst, d)
			}
		}
		if burst < r.Burst {
			return // it would take too long to empty
		}
		for range 20 {
			if now.Add(3*time.Duration(perToken)) > theYear(2260) {
				return // instants end in 2262
			}
			wait := th.take(r, bucketOfTest, now)
			if off := math.Abs(float64(wait)-perToken) / perToken; wait <= 0 || off > 0.001 {
				t.Fatalf("an empty bucket: told to wait for %v, not %v ns", wait, perToken)
			}
			if d := th.take(r, bucketOfTest, now.Add(wait-1)); d != 1 {
				t.Fatalf("a nanosecond before: told to wait for %v", d)
			}
			now = now.Add(wait)
			if d := th.take(r, bucketOfTest, now); d != 0 {
				t.Fatalf("after the wait: told to wait for another %v", d)
			}
		}
		now = now.Add(time.Duration(r.Burst) * time.Duration(math.Ceil(perToken*1.001)))
		for i := range burst {
			if d := th.take(r, bucketOfTest, now); d != 0 {
				t.Fatalf("token %d of %d after it was full again: told to wait for %v", i+1, burst, d)
			}
		}
	})
}

func TestRatesThatTakeTooLongToRefillAreRefused(t *testing.T) {
	const year = 365 * 24 * 3600
	for _, c := range []struct {
		name string
		rate Rate
		ok   bool
	}{
		{"one in ten years", Rate{PerSecond: 1.0 / (10 * year), Burst: 1}, true},
		{"one in a thousand years", Rate{PerSecond: 1.0 / (1000 * year), Burst: 1}, false},
		{"10,000, then one in twelve days", Rate{PerSecond: 1.0 / (12 * 24 * 3600), Burst: 10_000}, false},
		{"the smallest rate there is", Rate{PerSecond: math.SmallestNonzeroFloat64, Burst: 1}, false},
		{"the largest burst there is", Rate{PerSecond: maxRate, Burst: math.MaxInt}, false},
		{"the largest rate", Rate{PerSecond: maxRate, Burst: 10 * year * maxRate}, true},
		{"a larger one", Rate{PerSecond: math.Nextafter(maxRate, math.Inf(1)), Burst: 1}, false},
		{"no number", Rate{PerSecond: math.NaN(), Burst: 1}, false},
		{"no limit", Rate{}, true},
	} {
		if err := rateOperation(c.rate).Validate(); (err == nil) != c.ok {
			t.Errorf("%s: got %v", c.name, err)
		}
	}
}

// An operation that is declared anew keeps its buckets.
func TestANewRateDoesNotInheritALongWait(t *testing.T) {
	var th throttle
	now := theYear(2026)
	slow, fast := Rate{PerSecond: 1e-7, Burst: 1}, Rate{PerSecond: 10, Burst: 2}
	if d := th.take(slow, bucketOfTest, now); d != 0 {
		t.Fatal(d)
	}
	d := th.take(fast, bucketOfTest, now)
	if d != 100*time.Millisecond {
		t.Errorf("told to wait for %v, as the old rate would have it", d)
	}
	if d := th.take(fast, bucketOfTest, now.Add(d)); d != 0 {
		t.Errorf("told to wait for another %v", d)
	}
}

// The table has a fixed size: of too many callers those are forgotten who owe least.
func TestOfTooManyBucketsTheLeastUsedAreForgotten(t *testing.T) {
	var th throttle
	now := theYear(2026)
	name := func(i int) bucketName {
		return bucketName{kind: "quota", id: ID{Principal: strconv.Itoa(i)}}
	}
	const heavy, light = 100, 2 * throttleSets * throttleWays
	for i := range heavy {
		th.spend(name(i), time.Hour, now)
	}
	for i := range light {
		th.spend(name(heavy+i), time.Minute, now)
	}
	for i := range heavy {
		if d := th.wait(name(i), time.Minute, time.Hour, now); d != time.Minute {
			t.Fatalf("caller %d is told to wait for %v", i, d)
		}
	}
	forgotten := 0
	for i := range light {
		if th.wait(name(heavy+i), 0, 0, now) == 0 {
			forgotten++
		}
	}
	if forgotten < light/2 || forgotten == light {
		t.Errorf("%d of %d are forgotten", forgotten, light)
	}
}

// A debt ends some day, however large it is.
func TestDebtsAreBounded(t *testing.T) {
	var th throttle
	now := theYear(2200)
	for range 100 {
		th.spend(bucketOfTest, maxRefill, now)
	}
	if d := th.wait(bucketOfTest, 0, 0, now); d != maxRefill {
		t.Errorf("told to wait for %v", d)
	}
}
