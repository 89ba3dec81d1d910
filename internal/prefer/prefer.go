// Package prefer reads what callers prefer (RFC 7240).
package prefer

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// maxWait keeps a preference from overflowing. The operation's MaxWait bounds the wait
// itself.
const maxWait = 24 * time.Hour

// Wait reads Prefer: wait=N (RFC 7240): how long the caller would rather wait for the
// outcome than be told that there is none yet. The first one counts. A malformed one is
// ignored, which RFC 7240 allows.
func Wait(h http.Header) time.Duration {
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
			return min(time.Duration(n)*time.Second, maxWait)
		}
	}
	return 0
}

// Applied returns the header Preference-Applied of an answer to a caller who prefers to wait so
// long; empty if they don't.
func Applied(wait time.Duration) string {
	if wait <= 0 {
		return ""
	}
	return "wait=" + strconv.FormatInt(int64(wait/time.Second), 10)
}
