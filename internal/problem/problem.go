// Package problem writes refusals in the same way for all doors of this module: with their
// length, uncached, and with a type that browsers don't guess. Each door makes its own
// documents (RFC 9457 and the profiles' shapes).
package problem

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Type is the media type of RFC 9457.
const Type = "application/problem+json"

// Write answers with a document of type [Type]. It panics if doc has no JSON form.
func Write(w http.ResponseWriter, status int, doc any) { WriteAs(w, status, Type, doc) }

// WriteAs is [Write] for a document of another type.
func WriteAs(w http.ResponseWriter, status int, media string, doc any) {
	body, err := json.Marshal(doc)
	if err != nil {
		panic(err) // doors' documents have only strings and numbers
	}
	WriteBody(w, status, media, body)
}

// WriteBody is [WriteAs] for a body that is already encoded.
func WriteBody(w http.ResponseWriter, status int, media string, body []byte) {
	header := w.Header()
	header.Set("Content-Type", media)
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // a caller who is gone will retry
}

// RetryAfter sets the header that says when to ask again, and returns its seconds.
func RetryAfter(header http.Header, d time.Duration) int64 {
	n := Seconds(d)
	header.Set("Retry-After", strconv.FormatInt(n, 10))
	return n
}

// Seconds returns d in seconds, rounded up, and at least one.
func Seconds(d time.Duration) int64 { return max(1, int64((d+time.Second-1)/time.Second)) }

// Sentence turns an error's message into a sentence.
func Sentence(s string) string {
	if s == "" {
		return "The call is not valid."
	}
	s = strings.ToUpper(s[:1]) + s[1:]
	if !strings.HasSuffix(s, ".") {
		s += "."
	}
	return s
}
