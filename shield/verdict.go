package shield

import (
	"fmt"
	"net/http"

	"github.com/semelhq/semel/transport/judge"
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
	// Failed: the provider says by itself that it failed. The call fails, and
	// Operation.OnFailure says whether the effect may be tried again.
	Failed
)

// Judge is the rule for most providers. It is the table of package judge, made stricter
// where a provider's answer can mean less than that of your own program:
//
//   - 2xx: it happened.
//   - 401, 403, 407, 423, 424, 425, 429 and 511, and 503 with Retry-After: it wasn't tried.
//   - 408 and 409, which say that the request is or was under way: unclear.
//   - 402, which is how a payment is declined, and other 4xx: it was refused.
//   - everything else, 3xx and 5xx: unclear. An error after the effect looks like one
//     before it.
//
// A provider that knows Semel says more by the header Semel-Effect.
func Judge(r *Response) Verdict {
	if v := providers.Of(r.Status, r.Header).Verdict; v != judge.Failed {
		return verdicts[v]
	}
	return Unclear
}

var providers = judge.Rules{
	Final: []int{http.StatusPaymentRequired}, Unclear: []int{http.StatusConflict}, RedirectsUnclear: true,
}

// JudgeProgram is the rule for a program that does the work of your calls, as a provider
// does that of others: its word that it failed, such as by 500, counts.
func JudgeProgram(r *Response) Verdict { return verdicts[programs.Of(r.Status, r.Header).Verdict] }

var programs = judge.Rules{RedirectsUnclear: true}

var verdicts = [...]Verdict{
	judge.Unknown: Unclear, judge.Completed: Happened, judge.Rejected: Refused, judge.Aborted: NotTried, judge.Failed: Failed,
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
