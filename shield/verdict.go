package shield

import (
	"fmt"
	"net/http"
)

// Verdict is what a provider's answer proves about an effect.
type Verdict int

// The verdicts. The zero value proves nothing.
const (
	// Unclear: it may have happened. The effect stays started, and the call is held
	// until it is settled.
	Unclear Verdict = iota
	// Happened: the answer is the result of the effect.
	Happened
	// Refused: it did not happen and never will: the request is not acceptable.
	Refused
	// NotTried: it did not happen, and the same request may succeed later.
	NotTried
)

// Judge interprets HTTP statuses in the way that fits most providers:
//
//   - 2xx: it happened.
//   - 401, 403, 407, 425 and 429: it wasn't tried.
//   - 408 and 409, which say that the request is or was under way: unclear.
//   - other 4xx: it was refused.
//   - everything else, 3xx and 5xx: unclear. An error after the effect looks like one
//     before it.
func Judge(r *Response) Verdict {
	switch {
	case r.Status >= 200 && r.Status < 300:
		return Happened
	case r.Status == http.StatusUnauthorized, r.Status == http.StatusForbidden, r.Status == http.StatusProxyAuthRequired,
		r.Status == http.StatusTooEarly, r.Status == http.StatusTooManyRequests:
		return NotTried
	case r.Status == http.StatusRequestTimeout, r.Status == http.StatusConflict:
		return Unclear
	case r.Status >= 400 && r.Status < 500:
		return Refused
	}
	return Unclear
}

// Response is a provider's answer, as the ledger keeps it and every further attempt gets
// it.
type Response struct {
	Status int `json:"status"`
	// Header has the headers that [Client].Keep names.
	Header http.Header `json:"header,omitempty"`
	Body   []byte      `json:"body,omitempty"`
	// Truncated says that the body was longer than [Client].MaxBody.
	Truncated bool `json:"truncated,omitempty"`
	// Key is the key that the provider got, to find the request there.
	Key string `json:"key,omitempty"`
}

// StatusError is an answer that isn't a success. Its text doesn't include the body.
type StatusError struct {
	Response *Response
}

// Error returns the status.
func (e *StatusError) Error() string {
	return fmt.Sprintf("the provider answered with status %d", e.Response.Status)
}
