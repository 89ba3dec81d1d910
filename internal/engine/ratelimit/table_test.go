package ratelimit

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
		return Rate{PerSecond: min(perSecond, 1e6), Burst: int(burst)}
	}).Filter(func(r Rate) bool { return float64(r.Burst)/r.PerSecond <= MaxRefill.Seconds() })
}

var bucketOfTest = Name{Kind: "record", ID: store.ID{Operation: "op", Key: "k"}}

// theYear is a reading of a store's clock.
func theYear(year int) store.Instant {
	return store.InstantOf(time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC))
}

func TestEveryAcceptedRateThrottles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRate().Draw(t, "rate")
		now := theYear(rapid.IntRange(1970, 2200).Draw(t, "year")) + 1
		perToken := float64(time.Second) / r.PerSecond // nanoseconds
		var th Table
		burst := min(r.Burst, 2000)
		for i := range burst {
			if d := th.Take(r, bucketOfTest, now); d != 0 {
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
			wait := th.Take(r, bucketOfTest, now)
			if off := math.Abs(float64(wait)-perToken) / perToken; wait <= 0 || off > 0.001 {
				t.Fatalf("an empty bucket: told to wait for %v, not %v ns", wait, perToken)
			}
			if d := th.Take(r, bucketOfTest, now.Add(wait-1)); d != 1 {
				t.Fatalf("a nanosecond before: told to wait for %v", d)
			}
			now = now.Add(wait)
			if d := th.Take(r, bucketOfTest, now); d != 0 {
				t.Fatalf("after the wait: told to wait for another %v", d)
			}
		}
		now = now.Add(time.Duration(r.Burst) * time.Duration(math.Ceil(perToken*1.001)))
		for i := range burst {
			if d := th.Take(r, bucketOfTest, now); d != 0 {
				t.Fatalf("token %d of %d after it was full again: told to wait for %v", i+1, burst, d)
			}
		}
	})
}

// An operation that is declared anew keeps its buckets.
func TestANewRateDoesNotInheritALongWait(t *testing.T) {
	var th Table
	now := theYear(2026)
	slow, fast := Rate{PerSecond: 1e-7, Burst: 1}, Rate{PerSecond: 10, Burst: 2}
	if d := th.Take(slow, bucketOfTest, now); d != 0 {
		t.Fatal(d)
	}
	d := th.Take(fast, bucketOfTest, now)
	if d != 100*time.Millisecond {
		t.Errorf("told to wait for %v, as the old rate would have it", d)
	}
	if d := th.Take(fast, bucketOfTest, now.Add(d)); d != 0 {
		t.Errorf("told to wait for another %v", d)
	}
}

// The table has a fixed size: of too many callers those are forgotten who owe least.
func TestOfTooManyBucketsTheLeastUsedAreForgotten(t *testing.T) {
	var th Table
	now := theYear(2026)
	name := func(i int) Name {
		return Name{Kind: "quota", ID: store.ID{Principal: strconv.Itoa(i)}}
	}
	const heavy, light = 100, 2 * tableSets * tableWays
	for i := range heavy {
		th.Spend(name(i), time.Hour, now)
	}
	for i := range light {
		th.Spend(name(heavy+i), time.Minute, now)
	}
	for i := range heavy {
		if d := th.Wait(name(i), time.Minute, time.Hour, now); d != time.Minute {
			t.Fatalf("caller %d is told to wait for %v", i, d)
		}
	}
	forgotten := 0
	for i := range light {
		if th.Wait(name(heavy+i), 0, 0, now) == 0 {
			forgotten++
		}
	}
	if forgotten < light/2 || forgotten == light {
		t.Errorf("%d of %d are forgotten", forgotten, light)
	}
}

// A debt ends some day, however large it is.
func TestDebtsAreBounded(t *testing.T) {
	var th Table
	now := theYear(2200)
	for range 100 {
		th.Spend(bucketOfTest, MaxRefill, now)
	}
	if d := th.Wait(bucketOfTest, 0, 0, now); d != MaxRefill {
		t.Errorf("told to wait for %v", d)
	}
}

func TestQuotasCountByAccount(t *testing.T) {
	q := Quotas{Set: []Quota{
		{Limit: "principal", Most: 2, Window: time.Hour, Used: func(u Usage) int64 { return u.Records }},
		{Limit: "tenant", Most: 1000, Window: time.Hour, Tenant: true, Used: func(u Usage) int64 { return u.Bytes }},
		{Limit: "holds", Most: 1, Window: time.Hour, Unverified: true, Used: func(u Usage) int64 { return u.Holds }},
	}}
	a, b, now := Account{"t", "a"}, Account{"t", "b"}, theYear(2026)
	q.Charge(a, Usage{Records: 2, Holds: 1}, now)
	if d, by := q.Wait(a, true, now); d != 30*time.Minute || by != "principal" {
		t.Errorf("a waits %v for %s", d, by)
	}
	if d, by := q.Wait(a, false, now); d != time.Hour || by != "holds" {
		t.Errorf("unverified, a waits %v for %s", d, by)
	}
	q.Charge(a, Usage{Records: -1}, now)
	if d, _ := q.Wait(a, true, now); d != 0 {
		t.Errorf("a waits %v after it got one back", d)
	}
	if d, _ := q.Wait(b, false, now); d != 0 {
		t.Errorf("b waits %v", d)
	}
	if !q.Counts(Usage{Bytes: 1}) || q.Counts(Usage{Tombstones: 1}) {
		t.Error("the wrong usage counts")
	}
	if !q.Pay(a, Usage{Bytes: 900}, now) || q.Pay(b, Usage{Bytes: 200}, now) || !q.Pay(b, Usage{Bytes: 100}, now) {
		t.Error("a tenant's quota isn't shared, or who couldn't pay was charged")
	}
}

func TestBytesCountWhatCallersGave(t *testing.T) {
	f := &store.Failure{Code: "1", Message: "23"}
	r := store.Record{
		ID: store.ID{Tenant: "not counted", Key: "12"}, Payload: []byte("123"), HeldReason: "1", Result: store.Result{Data: []byte("1")}, Failure: f,
		Effects: []store.EffectRecord{{Name: "1", Failure: f}}, Earlier: []store.AttemptRecord{{Failure: f}},
		Attributes: store.Attributes{"1": "2"}, Outbox: []store.Message{{Name: "1", Order: "2", ContentType: "3", Payload: []byte("4")}, {}},
	}
	if n := Bytes(&r); n != 3*Overhead+23 {
		t.Errorf("%d bytes", n)
	}
}
