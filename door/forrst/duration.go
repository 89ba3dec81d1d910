package forrst

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"time"
)

// Duration is a span of time on the wire.
type Duration struct {
	Value int64 `json:"value"`
	// Unit is millisecond, second, minute, hour or day.
	Unit string `json:"unit"`
}

const day = 24 * time.Hour

// units of the idempotency extension.
var units = map[string]time.Duration{"second": time.Second, "minute": time.Minute, "hour": time.Hour, "day": day}

// seconds returns d in whole seconds, rounded up, and at least one.
func seconds(d time.Duration) Duration {
	return Duration{max(1, int64((d+time.Second-1)/time.Second)), "second"}
}

// rounded returns d in the largest unit that divides it.
func rounded(d time.Duration) Duration {
	for _, unit := range []string{"day", "hour", "minute"} {
		if d >= units[unit] && d%units[unit] == 0 {
			return Duration{int64(d / units[unit]), unit}
		}
	}
	return seconds(d)
}

// parseTTL reads the ttl of the idempotency extension, which is at path.
func parseTTL(raw json.RawMessage, longest time.Duration, path ...string) (time.Duration, Errors) {
	var errs Errors
	m, ok := members(raw)
	if !ok {
		return 0, one(InvalidArguments, At(path...), "The ttl must be an object with value and unit")
	}
	for name := range m {
		if name != "value" && name != "unit" {
			errs.add(InvalidArguments, At(append(path, name)...), "A ttl has only value and unit")
		}
	}
	unit, ok := text(m["unit"])
	size, known := units[unit]
	if !ok || !known {
		errs.add(InvalidArguments, At(append(path, "unit")...), "The unit of a ttl must be second, minute, hour or day")
	}
	value, err := strconv.ParseInt(string(bytes.TrimSpace(m["value"])), 10, 64)
	if err != nil || value <= 0 {
		errs.add(InvalidArguments, At(append(path, "value")...), "The value of a ttl must be a whole number above zero")
	}
	if len(errs) > 0 {
		return 0, errs
	}
	if value > math.MaxInt64/int64(size) || time.Duration(value)*size > longest {
		return 0, one(InvalidArguments, At(append(path, "value")...), "The ttl is longer than results are kept").detailed(map[string]any{"maximum": rounded(longest)})
	}
	return time.Duration(value) * size, nil
}
