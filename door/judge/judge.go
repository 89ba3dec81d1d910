package judge

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/safehttp"
)

// Verdict says what happened to the work.
type Verdict uint8

// The verdicts. The zero value proves nothing.
const (
	// Unknown: it may have been done, in part or whole. Nobody does it again before somebody
	// finds out.
	Unknown Verdict = iota
	// Completed: it was done, and the answer is its result.
	Completed
	// Rejected: it was refused for good, and nothing was done.
	Rejected
	// Aborted: nothing was done, and the same request may succeed later.
	Aborted
	// Failed: the program that does the work says that it failed.
	Failed
)

var names = [...]string{"unknown", "completed", "rejected", "aborted", "failed"}

// String returns the verdict in one word.
func (v Verdict) String() string { return names[v] }

// EffectHeader lets an upstream say more than its status: none means that nothing was done,
// unknown that something may have been, whatever the status. Any other value counts as
// unknown. It isn't passed on in either direction.
const EffectHeader = door.EffectHeader

// Answer is an answer to judge.
type Answer struct {
	Status int
	// Header is read only if this package or the rules name a header. Its names are canonical.
	Header http.Header
	// Body is the whole body. Set it if [Rules.Reads] asks for it; rules that look into a body
	// don't match an answer without one.
	Body []byte
	// SignedAnew says that the request's credential differs at each try, because it signs the
	// request: refusing it doesn't refuse the caller.
	SignedAnew bool
}

// Rules describe the program that answers, beyond the table. The zero value stands for a
// program behind any number of proxies that moves no money.
type Rules struct {
	// Own says that the answer comes from this process.
	Own bool
	// Financial says that the work moves money.
	Financial bool
	// RolledBack says that the work is undone unless it was completed or refused.
	RolledBack bool
	// Answers are declared by somebody who knows the path to the program; nil: none.
	Answers *Named
	// Contract is the same, by the program's contract. It comes after Answers.
	Contract *Named
	// RetryHeader is a header of the contract that says "true" with 409, 500 or 503 if the
	// program has done nothing and the request may be sent again. Optional.
	RetryHeader string
	// RedirectsUnclear is for callers who don't follow redirects, so that a redirect isn't a
	// result for them.
	RedirectsUnclear bool
}

// Of judges an answer: by its [EffectHeader], otherwise by the rules' own entries, then by the
// contract, and finally by the table.
func (r *Rules) Of(a Answer) Finding {
	f := Finding{Status: a.Status}
	if said, ok := a.Header[EffectHeader]; ok {
		f.Said, f.Verdict = true, ofEffect(said)
		return f
	}
	if r.Answers != nil {
		if f.Verdict, f.Named = r.Answers.of(&a); f.Named {
			return f
		}
	}
	if r.Contract != nil {
		var found bool
		if f.Verdict, found = r.Contract.of(&a); found {
			return f
		}
	}
	status := a.Status
	switch status {
	case http.StatusConflict, http.StatusInternalServerError, http.StatusServiceUnavailable:
		if r.RetryHeader != "" && says(a.Header[r.RetryHeader], "true") {
			f.Verdict = Aborted
			return f
		}
	case http.StatusOK:
		if code, shared, is := grpcCode(&a); is {
			f.Code, status = code, shared
		}
	}
	if status < 0 || status >= statuses {
		return f
	}
	money := 0
	if r.Financial {
		money = 1
	}
	f.Verdict = byStatus[money][status]
	switch inside := r.Own && status >= own.first && status <= own.last; {
	case r.RolledBack && (inside || f.Verdict == Unknown):
		f.Verdict = Aborted
	case inside && r.Financial:
		f.Verdict = own.financial
	case inside:
		f.Verdict = own.verdict
	case status == http.StatusForbidden && a.SignedAnew && !r.Financial:
		f.Verdict = Aborted
	case r.RedirectsUnclear && status >= 300 && status < 400 && f.Verdict == Completed:
		f.Verdict = Unknown
	}
	return f
}

// coded judges a protocol's error by the row that its code shares. What the answer itself says,
// or its status, comes first.
func (r *Rules) coded(code string, status int, header http.Header) Finding {
	f := r.Of(Answer{Status: status, Header: header})
	f.Code = code
	return f
}

// A2A judges a JSON-RPC error in an agent's answer. header is that answer's.
func (r *Rules) A2A(code int, header http.Header) Finding { return r.rpc(a2a, code, header) }

// MCP judges a JSON-RPC error of an MCP server by its code. header is the answer's.
func (r *Rules) MCP(code int, header http.Header) Finding { return r.rpc(mcp, code, header) }

// rpc judges an error of a protocol on JSON-RPC. One that isn't in its table means that the server
// failed.
func (r *Rules) rpc(table map[int]int, code int, header http.Header) Finding {
	status, known := table[code]
	if !known {
		status = http.StatusInternalServerError
	}
	return r.coded(strconv.Itoa(code), status, header)
}

// Forrst judges a Forrst error by its code, or else by the status that belongs to the code.
// header is the answer's.
func (r *Rules) Forrst(code string, status int, header http.Header) Finding {
	if other, ok := forrst[code]; ok {
		status = other
	}
	return r.coded(code, status, header)
}

// GRPC judges a gRPC code. header is the answer's, or nil in this process.
func (r *Rules) GRPC(code uint32, header http.Header) Finding {
	if int64(code) >= int64(len(grpc)) {
		return r.coded(strconv.FormatUint(uint64(code), 10), gateway, header)
	}
	return r.coded(grpc[code].name, grpc[code].status, header)
}

// grpcCode finds the gRPC code in an answer of 200 that has one, and the status that shares its
// row. A gRPC answer without a code is incomplete.
func grpcCode(a *Answer) (name string, status int, is bool) {
	if len(a.Header["Content-Type"]) != 1 {
		return "", 0, false
	}
	media, _, _ := strings.Cut(a.Header["Content-Type"][0], ";")
	media = strings.ToLower(strings.TrimSpace(media))
	if media != "application/grpc" && !strings.HasPrefix(media, "application/grpc+") {
		return "", 0, false
	}
	said := a.Header["Grpc-Status"]
	if said == nil {
		said = a.Header[http.TrailerPrefix+"Grpc-Status"]
	}
	if len(said) == 1 {
		if n, err := strconv.ParseUint(said[0], 10, 8); err == nil && n < uint64(len(grpc)) {
			return grpc[n].name, grpc[n].status, true
		}
	}
	return "no code of gRPC", gateway, true
}

// ofEffect reads [EffectHeader]. A value that it can't read proves nothing.
func ofEffect(values []string) Verdict {
	for _, v := range values {
		if !strings.EqualFold(strings.TrimSpace(v), door.EffectNone) {
			return Unknown
		}
	}
	return Aborted
}

func says(fields []string, word string) bool {
	return len(fields) == 1 && strings.EqualFold(strings.Trim(fields[0], " \t"), word)
}

// Finding is a verdict and the reasons for it.
type Finding struct {
	Verdict Verdict
	// Status is the answer's status; zero if there was no answer.
	Status int
	// Said means that the verdict is in [EffectHeader], and Named that it is in [Rules.Answers].
	Said, Named bool
	// Code is the protocol's error code that the verdict rests on; empty if it rests on the status.
	Code string
}

// Declared reports whether somebody has declared what the answer means, so that nothing else
// about it counts.
func (f *Finding) Declared() bool { return f.Said || f.Named }

// NoAnswer judges the error of a request through package safehttp that got no complete answer:
// the work is aborted if the error proves that nothing was sent, and otherwise unknown.
func NoAnswer(err error) Finding {
	if safehttp.NothingSent(err) {
		return Finding{Verdict: Aborted}
	}
	return Finding{}
}

// Why says what came back and what it means, for people.
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
	case f.Named && f.Verdict == Unknown:
		return what + ", which proves nothing here, as the setting answers says"
	case f.Verdict == Unknown:
		return what + ", which doesn't say whether the call was executed"
	case f.Verdict == Aborted:
		return what + ": nothing was done"
	}
	return what
}

// Worst returns the finding that counts among several about one call: unknown first, then
// failed, then aborted.
func Worst(a, b Finding) Finding {
	if rank[b.Verdict] > rank[a.Verdict] {
		return b
	}
	return a
}

var rank = [...]uint8{Unknown: 4, Failed: 3, Aborted: 2, Rejected: 1, Completed: 0}
