package ids

import (
	"strconv"
	"strings"
	"time"
)

// Duration is a time span that a registry writes as numbers with units, such as 90s,
// 1h30m or 7d; a day has 24 hours.
type Duration time.Duration

// String is the span as a registry writes it.
func (d Duration) String() string {
	const day = Duration(24 * time.Hour)
	if d >= day && d%day == 0 {
		return strconv.FormatInt(int64(d/day), 10) + "d"
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

// MarshalText is String.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// parseDuration reads what String writes, and days followed by other units.
func parseDuration(text string) (Duration, bool) {
	var total time.Duration
	if days, rest, found := strings.Cut(text, "d"); found {
		n, err := strconv.ParseUint(days, 10, 16) // 65,535 days fit
		if err != nil {
			return 0, false
		}
		total, text = time.Duration(n)*24*time.Hour, rest
		if text == "" {
			return Duration(total), true
		}
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || total+d < total {
		return 0, false
	}
	return Duration(total + d), true
}
