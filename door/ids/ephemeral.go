package ids

import (
	"slices"
	"strings"
)

// ephemerals are names of values that differ in every delivery, each as its words in
// lower case. A name matches if it ends in one of these: clientTimestamp and
// client_timestamp match, timestamp_zone doesn't.
var ephemerals = map[string][]string{
	"a time of now":   {"timestamp", "now", "ts", "sent at", "received at", "requested at", "delivered at", "request time", "created at", "issued at", "generated at", "client time", "current time", "timestamp ms", "unix time", "epoch ms", "iat"},
	"a message id":    {"message id", "messageid", "msg id", "msgid", "message uuid", "wamid", "request id", "requestid", "delivery id", "envelope id", "correlation id", "trace id", "span id", "traceparent"},
	"a random token":  {"nonce", "random", "rand", "salt", "token", "jti", "csrf", "entropy"},
	"a generated id":  {"new uuid", "generated id", "random id"},
	"a retry counter": {"attempt", "attempts", "retry", "retries", "retry count", "attempt count", "attempt number", "delivery count"},
}

// ephemeralAlone match as the whole name only: order_uuid names an order, uuid nothing.
var ephemeralAlone = []string{"uuid", "guid", "ulid", "uid", "ksuid", "time"}

// ephemeral says what a name stands for, if that differs in every delivery of one
// command (IDS-VII.4). It goes by the name alone.
func ephemeral(name string) (what string, is bool) {
	words := wordsOf(name)
	if slices.Contains(ephemeralAlone, words) {
		return "a generated id or time", true
	}
	for what, names := range ephemerals {
		for _, n := range names {
			if words == n || strings.HasSuffix(words, " "+n) {
				return what, true
			}
		}
	}
	return "", false
}

// wordsOf splits a name at "_", "-", ".", blanks and changes to upper case, and joins
// the words in lower case by blanks.
func wordsOf(name string) string {
	var b strings.Builder
	upper := func(c byte) bool { return c >= 'A' && c <= 'Z' }
	blank := true
	for i := range len(name) {
		c := name[i]
		if c == '_' || c == '-' || c == '.' || c == ' ' {
			if !blank {
				b.WriteByte(' ')
			}
			blank = true
			continue
		}
		// Both sentAt and HTTPNonce are two words.
		if upper(c) && !blank && (!upper(name[i-1]) || i+1 < len(name) && name[i+1] >= 'a' && name[i+1] <= 'z') {
			b.WriteByte(' ')
		}
		if upper(c) {
			c += 'a' - 'A'
		}
		b.WriteByte(c)
		blank = false
	}
	return strings.TrimSpace(b.String())
}
