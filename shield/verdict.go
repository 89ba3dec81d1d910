package shield

import (
	"cmp"
	"fmt"
	"net/http"

	"github.com/semelhq/semel/door/judge"
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

// Judge is the rule for most providers, for calls that move no money. It is the table of
// package judge, made stricter where a provider's answer can mean less than that of your own
// program:
//
//   - 2xx: it happened.
//   - 307, 308, 401, 407, 411, 412, 415, 417, 421, 423, 425, 426, 428, 429, 431 and 511: it
//     wasn't tried.
//   - 408, 409 and 424, which say that the request is or was under way: unclear.
//   - 402, which is how a payment is declined, 403 and the other 4xx that are registered: it
//     was refused. If the operation is financial, a 403 is unclear: a firewall says it, too,
//     after the provider has done the work.
//   - everything else, 3xx and 5xx: unclear. An error after the effect looks like one
//     before it.
//
// A provider that knows Semel says more by the header Semel-Effect. [Client] uses the
// operation's Financial by itself.
func Judge(r *Response) Verdict { return judgeProvider(r, false) }

func judgeProvider(r *Response, financial bool) Verdict {
	rules := judge.Rules{Contract: contract, RedirectsUnclear: true, Financial: financial}
	if v := JudgeBy(rules)(r); v != Failed {
		return v
	}
	return Unclear
}

var contract = judge.Answers{Final: []string{"402"}, Unknown: []string{"409"}}.Must()

// JudgeBy is the rule for a program that does the work of your calls, as a provider does
// that of others: its word that it failed, such as by 500, counts.
func JudgeBy(rules judge.Rules) func(r *Response) Verdict {
	return func(r *Response) Verdict {
		a := judge.Answer{Status: r.Status, Header: r.Header, Body: r.Body}
		if r.Truncated {
			a.Body = nil
		}
		return verdicts[rules.Of(a).Verdict]
	}
}

var verdicts = [...]Verdict{
	judge.Unknown: Unclear, judge.Completed: Happened, judge.Rejected: Refused, judge.Aborted: NotTried, judge.Failed: Failed,
}

// Response is a provider's answer, as the ledger keeps it and every further attempt gets
// it.
type Response struct {
	Status int `json:"status"`
	// Header has the headers that [Client].Keep names. [Provider].Judge sees all.
	Header http.Header `json:"header,omitempty"`
	Body   []byte      `json:"body,omitempty"`
	// Truncated says that the body was longer than [Client].MaxBody.
	Truncated bool `json:"truncated,omitempty"`
	// Key is the key that the provider got, to find the request there.
	Key string `json:"key,omitempty"`
}

// StatusError is an answer that isn't a success. Its text includes nothing of the body, but
// for what [Client].Words took from it.
type StatusError struct {
	Response *Response
	// Code and Text are the provider's own words; see [Client].Words.
	Code, Text string
}

// Error returns the provider's text, or else the status.
func (e *StatusError) Error() string {
	return cmp.Or(e.Text, fmt.Sprintf("the provider answered with status %d", e.Response.Status))
}
