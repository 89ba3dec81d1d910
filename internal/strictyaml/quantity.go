package strictyaml

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Duration is a time span, written as numbers with units, such as 90s, 1h30m or 7d; a day
// has 24 hours.
type Duration time.Duration

// Size is a number of bytes, written plain or with a unit such as KiB or MB.
type Size int64

var (
	errDuration = errors.New("is not a duration")
	errSize     = errors.New("is not a size")
	errRange    = errors.New("is too large")
)

// ParseDuration reads a duration.
func ParseDuration(text string) (Duration, error) {
	days, rest, found := strings.Cut(text, "d")
	if !found {
		days, rest = "", text
	}
	var total time.Duration
	if found {
		n, err := strconv.ParseUint(days, 10, 31)
		if errors.Is(err, strconv.ErrRange) || n > uint64(math.MaxInt64/(24*time.Hour)) {
			return 0, errRange
		}
		if err != nil {
			return 0, errDuration
		}
		total = time.Duration(n) * 24 * time.Hour
	}
	if rest != "" {
		d, err := time.ParseDuration(rest)
		if err != nil || found && strings.HasPrefix(rest, "-") {
			return 0, errDuration
		}
		if d > 0 && total > math.MaxInt64-d {
			return 0, errRange
		}
		total += d
	}
	if text == "" {
		return 0, errDuration
	}
	return Duration(total), nil
}

// String returns the shortest text that [ParseDuration] reads as this duration.
func (d Duration) String() string {
	const day = Duration(24 * time.Hour)
	if d >= day {
		text := fmt.Sprintf("%dd", d/day)
		if d%day != 0 {
			text += (d % day).String()
		}
		return text
	}
	text := time.Duration(d).String()
	if before, ok := strings.CutSuffix(text, "m0s"); ok {
		text = before + "m"
	}
	if before, ok := strings.CutSuffix(text, "h0m"); ok {
		text = before + "h"
	}
	return text
}

// MarshalText writes String.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

var sizeUnits = []struct {
	name  string
	bytes int64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1},
}

// ParseSize reads a size.
func ParseSize(text string) (Size, error) {
	digits, unit := text, int64(1)
	for _, u := range sizeUnits {
		if before, ok := strings.CutSuffix(text, u.name); ok {
			digits, unit = before, u.bytes
			break
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return 0, errRange
	case err != nil || strings.HasPrefix(digits, "+"):
		return 0, errSize
	case n > math.MaxInt64/unit:
		return 0, errRange
	case n < 0 && n < math.MinInt64/unit:
		return 0, errRange
	}
	return Size(n * unit), nil
}

// String returns the size in the unit that needs the fewest digits.
func (s Size) String() string {
	best, digits := "", strconv.FormatInt(int64(s), 10)
	if s == 0 {
		return digits
	}
	for _, u := range sizeUnits {
		if int64(s)%u.bytes != 0 || u.bytes == 1 {
			continue
		}
		if d := strconv.FormatInt(int64(s)/u.bytes, 10); len(d) < len(digits) {
			best, digits = u.name, d
		}
	}
	return digits + best
}

// Rounded formats a number of bytes for people, with two or three digits: 61 GiB, 1.5 MiB.
func Rounded(bytes uint64) string {
	n, unit := float64(bytes), "B"
	for _, next := range []string{"KiB", "MiB", "GiB", "TiB", "PiB"} {
		if n < 1024 {
			break
		}
		n, unit = n/1024, next
	}
	if n < 10 && unit != "B" {
		return strconv.FormatFloat(n, 'f', 1, 64) + " " + unit
	}
	return strconv.FormatFloat(n, 'f', 0, 64) + " " + unit
}

// MarshalText writes String.
func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
