package semelhttp

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	refusal "github.com/semelhq/semel/internal/problem"
)

// maxPreferredWait keeps a preference from overflowing. The operation's MaxWait bounds the wait
// itself.
const maxPreferredWait = 24 * time.Hour

// PreferredWait reads Prefer: wait=N (RFC 7240): how long the caller would rather wait for the
// outcome than be told that there is none yet. The first one counts. A malformed one is
// ignored, which RFC 7240 allows.
func PreferredWait(h http.Header) time.Duration {
	for _, field := range h["Prefer"] {
		for item := range strings.SplitSeq(field, ",") {
			item, _, _ = strings.Cut(item, ";")
			name, value, _ := strings.Cut(item, "=")
			if !strings.EqualFold(strings.Trim(name, " \t"), "wait") {
				continue
			}
			value = strings.Trim(strings.Trim(value, " \t"), `"`)
			n, err := strconv.ParseUint(value, 10, 32)
			if err != nil {
				return 0
			}
			return min(time.Duration(n)*time.Second, maxPreferredWait)
		}
	}
	return 0
}

// seconds returns d in seconds, rounded up, and at least one.
func seconds(d time.Duration) string { return strconv.FormatInt(refusal.Seconds(d), 10) }
