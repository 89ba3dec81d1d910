package store

import (
	"math"
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// drawInstant is any instant but those of the outermost two seconds, to which
// what lies outside is moved.
func drawInstant() *rapid.Generator[Instant] {
	const limit = math.MaxInt64 - 2*int64(time.Second)
	return rapid.Custom(func(t *rapid.T) Instant { return Instant(rapid.Int64Range(-limit, limit).Draw(t, "instant")) })
}

func TestInstantIsATimeAndBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		i := drawInstant().Draw(t, "i")
		at := i.Time()
		if i != 0 && at.UnixNano() != int64(i) || at.IsZero() != (i == 0) || at.Location() != time.UTC {
			t.Fatalf("%d is the time %v", i, at)
		}
		zone := time.FixedZone("somewhere", rapid.IntRange(-14*3600, 14*3600).Draw(t, "offset"))
		if back := InstantOf(at.In(zone)); back != i {
			t.Fatalf("%d is %v, which is %d", i, at.In(zone), back)
		}
		if micros := i.Micros(); i > 0 && micros != at.UnixMicro() {
			t.Fatalf("%d has %d microseconds, want %d", i, micros, at.UnixMicro())
		}
	})
}

func TestInstantCountsAsTimesDo(t *testing.T) {
	const century = 100 * 365 * 24 * time.Hour
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) Instant { return Instant(rapid.Int64Range(1, 2*int64(century)).Draw(t, name)) }
		i, j := draw("i"), draw("j")
		d := time.Duration(rapid.Int64Range(-int64(i)+1, min(int64(century), math.MaxInt64-int64(i))).Draw(t, "d"))
		if got, want := i.Add(d).Time(), i.Time().Add(d); !got.Equal(want) {
			t.Fatalf("%v + %v is %v, want %v", i, d, got, want)
		}
		if got, want := i.Sub(j), i.Time().Sub(j.Time()); got != want {
			t.Fatalf("%v - %v is %v, want %v", i, j, got, want)
		}
		if (i < j) != i.Time().Before(j.Time()) || (i == j) != i.Time().Equal(j.Time()) {
			t.Fatalf("%v and %v have another order as times", i, j)
		}
	})
}

func TestNoInstantIsNoTime(t *testing.T) {
	var none Instant
	if !none.IsZero() || !none.Time().IsZero() || none.String() != "" || Instant(1).IsZero() || Instant(-1).IsZero() {
		t.Errorf("no instant is %v, %q", none.Time(), none)
	}
	for _, at := range []time.Time{{}, time.Time{}.In(time.FixedZone("somewhere", 3600))} {
		if i := InstantOf(at); i != 0 {
			t.Errorf("the zero time is %d", i)
		}
	}
}

func TestTimesOutsideOfWhatAnInstantHoldsAreItsEnds(t *testing.T) {
	for name, c := range map[string]struct {
		at   time.Time
		want Instant
	}{
		"a nanosecond after the zero time": {time.Time{}.Add(1), math.MinInt64},
		"long before the year 1":           {time.Unix(math.MinInt64/2, 0), math.MinInt64},
		"the year 1677":                    {time.Date(1677, 1, 1, 0, 0, 0, 0, time.UTC), math.MinInt64},
		"a nanosecond before the first":    {Instant(math.MinInt64).Time().Add(-1), math.MinInt64},
		"the first":                        {Instant(math.MinInt64).Time(), math.MinInt64},
		"the last":                         {Instant(math.MaxInt64).Time(), math.MaxInt64},
		"a nanosecond after the last":      {Instant(math.MaxInt64).Time().Add(1), math.MaxInt64},
		"the year 2263":                    {time.Date(2263, 1, 1, 0, 0, 0, 0, time.UTC), math.MaxInt64},
		"the year 9999":                    {time.Date(9999, 12, 31, 23, 59, 59, 999_999_999, time.UTC), math.MaxInt64},
		"the last second that Unix knows":  {time.Unix(math.MaxInt64/2, 0), math.MaxInt64},
	} {
		t.Run(name, func(t *testing.T) {
			if got := InstantOf(c.at); got != c.want {
				t.Errorf("%v is %d, want %d", c.at, got, c.want)
			}
		})
	}
}

func TestTextOfInstants(t *testing.T) {
	at := InstantOf(time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC))
	for name, c := range map[string]struct {
		text  string
		want  Instant
		shown string
	}{
		"nothing is none":            {"", 0, ""},
		"in UTC":                     {"2026-01-02T03:04:05.000000006Z", at, "2026-01-02T03:04:05.000000006Z"},
		"with an offset to the east": {"2026-01-02T04:34:05.000000006+01:30", at, "2026-01-02T03:04:05.000000006Z"},
		"with an offset to the west": {"2026-01-01T22:04:05.000000006-05:00", at, "2026-01-02T03:04:05.000000006Z"},
		"a whole second":             {"2026-01-02T03:04:05Z", at - 6, "2026-01-02T03:04:05Z"},
		"before 1970":                {"1969-12-31T23:59:59.999999999Z", -1, "1969-12-31T23:59:59.999999999Z"},
		"the zero time":              {"0001-01-01T00:00:00Z", 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			i := Instant(42)
			if err := i.UnmarshalText([]byte(c.text)); err != nil || i != c.want {
				t.Fatalf("%q is read as %d, %v; want %d", c.text, i, err, c.want)
			}
			if text, err := i.MarshalText(); string(text) != c.shown || i.String() != c.shown || err != nil {
				t.Errorf("%d is written as %q and %q, %v", i, text, i, err)
			}
		})
	}
	t.Run("what is written is read as the same", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			i := drawInstant().Draw(t, "i")
			text, err := i.MarshalText()
			if err != nil {
				t.Fatal(err)
			}
			var back Instant
			if err := back.UnmarshalText(text); err != nil || back != i {
				t.Fatalf("%d is written as %q and read as %d, %v", i, text, back, err)
			}
		})
	})
	for _, text := range []string{
		"garbage", "0", "1767323045", "2026-01-02", "03:04:05Z", "2026-01-02T03:04:05", "2026-01-02 03:04:05Z",
		"2026-02-30T03:04:05Z", "2026-01-02T24:04:05Z", "2026-01-02T03:04:05+25:00", "2026-01-02T03:04:05Z ", "\x00",
	} {
		t.Run("refused: "+text, func(t *testing.T) {
			i := Instant(42)
			if err := i.UnmarshalText([]byte(text)); err == nil || i != 42 {
				t.Errorf("it is read as %v, %v", i, err)
			}
		})
	}
}

func TestInstantsSaturate(t *testing.T) {
	const last, first = Instant(math.MaxInt64), Instant(math.MinInt64)
	if got := Instant(1).Add(math.MaxInt64); got != last {
		t.Errorf("1ns + the longest = %d", got)
	}
	if got := Instant(-2).Add(math.MinInt64); got != first {
		t.Errorf("-2ns - the longest = %d", got)
	}
	if got := last.Sub(-1); got != math.MaxInt64 {
		t.Errorf("the last - (-1ns) = %d", got)
	}
	if got := first.Sub(1); got != math.MinInt64 {
		t.Errorf("the first - 1ns = %d", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		i, d := rapid.Int64().Draw(t, "instant"), rapid.Int64().Draw(t, "duration")
		want := new(big.Int).Add(big.NewInt(i), big.NewInt(d))
		if got := Instant(i).Add(time.Duration(d)); want.IsInt64() && int64(got) != want.Int64() || !want.IsInt64() && (got == last) != (d > 0) {
			t.Errorf("%d + %d = %d", i, d, got)
		}
		want.Sub(big.NewInt(i), big.NewInt(d))
		if got := Instant(i).Sub(Instant(d)); want.IsInt64() && int64(got) != want.Int64() || !want.IsInt64() && (got > 0) != (i > d) {
			t.Errorf("%d - %d = %d", i, d, got)
		}
	})
}
