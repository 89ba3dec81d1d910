package credential

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// A key is hard to guess if it is long enough, and enough of its characters differ.
const (
	unguessableLen      = 20
	unguessableDistinct = 10
)

// Guessable reports whether another caller could use the same key, by chance or on purpose. A
// UUID, a ULID or a long and varied key can't be guessed, unless it is just a counter. A key
// made from an order number and a date counts as unguessable, too: a second caller then gets a
// refusal while the first one's call may have happened. The opposite mistake would cost a
// second effect.
func Guessable(key string) bool {
	// Fewer than one in a billion random UUIDs has so many zeros.
	zeros := strings.Count(key, "0")
	switch {
	case zeros > 0 && 2*zeros >= len(key)-strings.Count(key, "-"):
		return true // just a counter, whatever its form
	case isUUID(key), isULID(key):
		return false
	case strings.Trim(key, "0123456789") == "":
		return true // a number
	}
	var room [unguessableDistinct]rune
	seen := room[:0]
	for _, c := range key {
		if !slices.Contains(seen, c) {
			seen = append(seen, c)
		}
		if len(seen) == unguessableDistinct {
			return utf8.RuneCountInString(key) < unguessableLen
		}
	}
	return true
}

// isUUID reports whether the text has the form of a UUID, with hyphens or without.
func isUUID(s string) bool {
	switch len(s) {
	case 36:
		if s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
			return false
		}
		s = s[:8] + s[9:13] + s[14:18] + s[19:23] + s[24:]
	case 32:
	default:
		return false
	}
	return strings.Trim(s, "0123456789abcdefABCDEF") == ""
}

// isULID reports whether the text has the form of a ULID: 26 characters of Crockford's
// base32, which has no I, L, O and U, and at most 128 bits.
func isULID(s string) bool {
	return len(s) == 26 && s[0] >= '0' && s[0] <= '7' && strings.Trim(strings.ToUpper(s), "0123456789ABCDEFGHJKMNPQRSTVWXYZ") == ""
}
