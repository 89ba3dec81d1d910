package judge

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/semelhq/semel/transport/safehttp"
)

// Verdict is what came of the work.
type Verdict uint8

// The verdicts. The zero value proves nothing.
const (
	// Unknown: it may have been done, in part or whole. It isn't done again before
	// somebody finds out.
	Unknown Verdict = iota
	// Completed: it was done, and the answer is its result.
	Completed
	// Rejected: it was refused for good, and nothing was done.
	Rejected
	// Aborted: nothing was done, and the same request may succeed later.
	Aborted
	// Failed: whoever does the work says that it failed.
	Failed
)

var names = [...]string{"unknown", "completed", "rejected", "aborted", "failed"}

// String is the verdict in one word.
func (v Verdict) String() string { return names[v] }

// EffectHeader is the header by which an upstream says what its status can't: with none
// that nothing was done, with unknown that something may have been, whatever the status.
// Any other value counts as unknown. It isn't passed on in either direction.
const EffectHeader = "Semel-Effect"

// effectNone is the value that says that nothing was done.
const effectNone = "none"

// table has what a status proves if nothing else is known. Later rows count. A status
// that a proxy, a gateway or a balancer may have given instead of the program proves
// nothing: 408, 502, 503, 504, and those from 520 to 530, which are Cloudflare's.
var table = [...]struct {
	first, last int
	verdict     Verdict
}{
	{101, 101, Completed}, // another protocol has begun
	{200, 399, Completed},
	{400, 499, Rejected},
	{500, 599, Failed},
	{401, 403, Aborted}, // about who asks, and with what
	{407, 407, Aborted},
	{408, 408, Unknown},
	{423, 425, Aborted}, // about what has to happen first
	{429, 429, Aborted},
	{502, 504, Unknown},
	{511, 511, Aborted}, // from a captive portal
	{520, 530, Unknown},
}

// byStatus is the table, by the status.
var byStatus = func() (list [600]Verdict) {
	for _, row := range table {
		for status := row.first; status <= row.last; status++ {
			list[status] = row.verdict
		}
	}
	return list
}()

// ofStatus is what a status proves.
func ofStatus(status int) Verdict {
	if status < 0 || status >= len(byStatus) {
		return Unknown
	}
	return byStatus[status]
}

// Rules are what is known of whoever answers, beside the table. The zero value is that of
// a program behind any number of proxies.
type Rules struct {
	// Own says that the answer comes from this process, with nothing in between: its 503
	// is its own word, and it has done nothing. Its 502 and 504 speak of somebody else.
	Own bool
	// NotExecuted are statuses that prove that nothing was done, as somebody who knows the
	// way to the program has declared.
	NotExecuted []int
	// Contract are statuses that prove the same by the contract of the program, unless
	// RetryHeader says false.
	Contract []int
	// Final are statuses that refuse for good here although the table says aborted.
	Final []int
	// Unclear are statuses that prove nothing here although the table says more.
	Unclear []int
	// RedirectsUnclear is for those who don't follow redirects, and for whom one is
	// therefore no result.
	RedirectsUnclear bool
	// RetryHeader is a header of the contract by which the program says of an answer from
	// 400 whether to send the request again: true, and nothing was done, unless the answer
	// may be somebody else's; or false. Optional.
	RetryHeader string
}

// Of judges an answer by its status and header, of which only the headers that this
// package names are read. The names are canonical.
func (r *Rules) Of(status int, header http.Header) Finding {
	f := Finding{Status: status, Verdict: ofStatus(status)}
	if said, ok := header[EffectHeader]; ok {
		f.Said, f.Verdict = true, ofEffect(said)
		return f
	}
	if status < 400 {
		if r.RedirectsUnclear && status >= 300 {
			f.Verdict = Unknown
		}
		return f
	}
	var retry []string
	if r.RetryHeader != "" {
		retry = header[r.RetryHeader]
	}
	never := says(retry, "false")
	switch {
	case slices.Contains(r.NotExecuted, status):
		f.Verdict = Aborted
	case says(retry, "true") && (f.Verdict != Unknown || status == http.StatusServiceUnavailable):
		f.Verdict = Aborted
	case slices.Contains(r.Contract, status) && !never:
		f.Verdict = Aborted
	case slices.Contains(r.Final, status):
		f.Verdict = Rejected
	case slices.Contains(r.Unclear, status):
		f.Verdict = Unknown
	case status != http.StatusServiceUnavailable:
	case never:
		f.Verdict = Failed // nobody in between knows the header
	case r.Own, len(header["Retry-After"]) > 0:
		f.Verdict = Aborted // the server itself asks for the same request again
	}
	return f
}

// ofEffect reads [EffectHeader]. What can't be read is no proof.
func ofEffect(values []string) Verdict {
	for _, v := range values {
		if !strings.EqualFold(strings.TrimSpace(v), effectNone) {
			return Unknown
		}
	}
	return Aborted
}

func says(fields []string, word string) bool {
	return len(fields) == 1 && strings.EqualFold(strings.Trim(fields[0], " \t"), word)
}

// Finding is a verdict with what it rests on.
type Finding struct {
	Verdict Verdict
	// Status is that of the answer; zero if there was none.
	Status int
	// Said is set if the verdict is in [EffectHeader].
	Said bool
	// Code is the protocol's error code that it rests on; empty if it is the status.
	Code string
}

// NoAnswer judges the error of a request through package safehttp that got no whole
// answer: it is aborted if that proves that nothing was sent, and otherwise unknown.
func NoAnswer(err error) Finding {
	if safehttp.NothingSent(err) {
		return Finding{Verdict: Aborted}
	}
	return Finding{}
}

// Why says for people what came back, and what that means.
func (f Finding) Why() string {
	what := fmt.Sprintf("the answer was %d", f.Status)
	if f.Code != "" {
		what = "the answer was " + f.Code
	}
	switch {
	case f.Status == 0 && f.Code == "" && f.Verdict == Aborted:
		return "there was no connection, and nothing was sent"
	case f.Status == 0 && f.Code == "":
		return "the request was sent, and no whole answer came back"
	case f.Said && f.Verdict == Aborted:
		return what + ", and said that nothing was done"
	case f.Said:
		return what + ", and said that something may have been done"
	case f.Verdict == Unknown:
		return what + ", which doesn't say whether the call was executed"
	case f.Verdict == Aborted:
		return what + ": nothing was done"
	}
	return what
}

// Worst is the finding that counts of several about one call: unknown first, then failed,
// then aborted.
func Worst(a, b Finding) Finding {
	if rank[b.Verdict] > rank[a.Verdict] {
		return b
	}
	return a
}

var rank = [...]uint8{Unknown: 4, Failed: 3, Aborted: 2, Rejected: 1, Completed: 0}
