package store

import (
	"math"
	"time"
)

// Instant is a moment by a store's clock: nanoseconds since 1970 in UTC. Zero
// means that there is none. Records use instants instead of [time.Time] because
// a record has many, lives long and is copied often: an Instant is a third of the
// size and has no pointer. Compare instants as numbers.
type Instant int64

// InstantOf returns t as an Instant. The zero Time gives zero, and a time before 1678 or after
// 2262 the nearest instant.
func InstantOf(t time.Time) Instant {
	switch sec := t.Unix(); {
	case t.IsZero():
		return 0
	case sec > math.MaxInt64/int64(time.Second)-1:
		return math.MaxInt64
	case sec < math.MinInt64/int64(time.Second)+1:
		return math.MinInt64
	}
	return Instant(t.UnixNano())
}

// Time returns i as a Time in UTC; zero for zero.
func (i Instant) Time() time.Time {
	if i == 0 {
		return time.Time{}
	}
	return time.Unix(0, int64(i)).UTC()
}

// IsZero reports whether i stands for no time.
func (i Instant) IsZero() bool { return i == 0 }

// Add returns the moment d later, or the last or first Instant.
func (i Instant) Add(d time.Duration) Instant {
	sum := i + Instant(d)
	if (sum > i) != (d > 0) && d != 0 {
		return bound(d > 0)
	}
	return sum
}

// Sub returns the time from j to i, or the longest Duration.
func (i Instant) Sub(j Instant) time.Duration {
	diff := i - j
	if (diff > 0) != (i > j) && i != j {
		return time.Duration(bound(i > j))
	}
	return time.Duration(diff)
}

func bound(last bool) Instant {
	if last {
		return math.MaxInt64
	}
	return math.MinInt64
}

// String returns the moment in RFC 3339, or "" for none.
func (i Instant) String() string {
	if i == 0 {
		return ""
	}
	return i.Time().Format(time.RFC3339Nano)
}

// MarshalText is [Instant.String].
func (i Instant) MarshalText() ([]byte, error) { return []byte(i.String()), nil }

// UnmarshalText reads RFC 3339 with any offset, or nothing for none.
func (i *Instant) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*i = 0
		return nil
	}
	var t time.Time
	if err := t.UnmarshalText(text); err != nil {
		return err
	}
	*i = InstantOf(t)
	return nil
}

// Micros returns i in microseconds, the unit of fences.
func (i Instant) Micros() int64 { return int64(i) / int64(time.Microsecond) }

// NextFence returns the next fencing token of an identity, higher than all earlier ones: at
// least one more than the last known fence, and at least the store's time in microseconds,
// which is higher than the fence of any purged record.
func NextFence(last int64, now Instant) int64 { return max(last+1, now.Micros()) }
