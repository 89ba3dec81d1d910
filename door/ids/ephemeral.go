package ids

import (
	"slices"
	"strings"

	"github.com/semelhq/semel/internal/keytemplate"
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

// ephemeralAlone match only as the whole name: order_uuid names an order, uuid nothing.
var ephemeralAlone = []string{"uuid", "guid", "ulid", "uid", "ksuid", "time"}

// ephemeral says what a name stands for, if that differs in every delivery of one command
// (IDS-VII.4). It looks only at the name.
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

// wordsOf returns the words of a name, which may contain blanks, joined by blanks.
func wordsOf(name string) string {
	return strings.TrimSpace(strings.Join(keytemplate.Words(strings.ReplaceAll(name, " ", "_")), " "))
}
