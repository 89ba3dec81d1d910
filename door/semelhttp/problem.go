package semelhttp

import (
	"cmp"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	refusal "github.com/semelhq/semel/internal/problem"
	"github.com/semelhq/semel/internal/reference"
	"github.com/semelhq/semel/store"
)

// problem is a refusal, whatever its form on the wire. This package sends nothing of its own
// except problems and replays.
type problem struct {
	Refusal
	last      uint64      // the newest number, for a superseded call
	expected  uint64      // the number that comes next, for a sequence gap
	limit     semel.Limit // the limit that throttled the request
	reference string      // names the record; empty if there is none
	effect    string      // see door.Meaning; empty: the code's
}

// Problem is a refusal as an RFC 9457 document, for clients and tests that read one.
type Problem struct {
	// Type is stable: Options.TypeBase and the code.
	Type string `json:"type"`
	// Code is a [semel.Code], or one of this package's.
	Code semel.Code `json:"code"`
	// Title and Detail are texts for people.
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	// Action is what a program or a model does next.
	Action store.Action `json:"action,omitempty"`
	// Limit is the limit that throttled the request, for [semel.CodeThrottled].
	Limit semel.Limit `json:"limit,omitempty"`
	// LastSequence is the newest number of the sequence, for [semel.CodeSuperseded].
	LastSequence uint64 `json:"last_sequence,omitempty"`
	// ExpectedSequence is the number that comes next, for [semel.CodeSequenceGap].
	ExpectedSequence uint64 `json:"expected_sequence,omitempty"`
	// Instance names the call that the problem is about.
	Instance string `json:"instance,omitempty"`
	// Reference is what to ask the status resource for.
	Reference string `json:"reference,omitempty"`
	// StatusURL is the address to ask for the state of the call.
	StatusURL string `json:"status_url,omitempty"`
	// Retryable says that it makes sense to send the same request again.
	Retryable bool `json:"retryable"`
	// RetryAfter says when, in seconds.
	RetryAfter int64 `json:"retry_after,omitempty"`
}

// ProblemType is the media type of a [Problem].
const ProblemType = refusal.Type

// NewProblem explains a code by the table of package door, with the table's words if detail is
// empty. typeBase is as in [Options].
func NewProblem(typeBase string, code semel.Code, detail string) Problem {
	m, _ := door.Lookup(code)
	return Problem{
		Type: typeBase + string(m.Code), Code: m.Code, Title: m.Title, Status: m.Status,
		Detail: cmp.Or(detail, m.HTTPDetail()), Action: m.Do,
	}
}

// refuseRecord is refuse for a problem with a record.
func (h *handler) refuseRecord(w http.ResponseWriter, rec *semel.Record, p problem) said {
	p.reference = reference.Of(rec.ID)
	return h.refuse(w, p)
}

// problemOf returns the problem for a code, from the table of refusals.
func problemOf(code semel.Code) problem {
	m, _ := door.Lookup(code)
	return problem{Refusal: Refusal{Status: m.Status, Code: m.Code, Title: m.Title, Detail: m.HTTPDetail(), RetryAfter: m.Retry}}
}

// otherCaller returns the refusal of a call that belongs to another caller, or may, as far as
// an unproved caller has shown.
func otherCaller(unproved bool) problem {
	if !unproved {
		return problemOf(semel.CodeOtherCaller)
	}
	return because(semel.CodeOtherCaller, "The key was used before, and something may have happened. The request is signed anew for each try, and its signature proves nothing here, so nothing is shown. Nothing was executed now. Find out in another way what happened; a new key makes another call.")
}

// because is problemOf with a detail of its own instead of the table's.
func because(code semel.Code, detail string) problem {
	p := problemOf(code)
	p.Detail = detail
	return p
}

// decided returns the refusal for a decision. It has a reference to the record only if that is
// the caller's own call: in a conflict, the two have nothing in common but the key.
func (h *handler) decided(ans *semel.Answer, unproved bool) problem {
	e, ok := errors.AsType[*semel.Error](ans.Err())
	if !ok {
		return problemOf(door.CodeInternal)
	}
	p := problemOf(e.Code)
	p.RetryAfter, p.limit = max(ans.RetryAfter, p.RetryAfter), ans.Limit
	switch e.Code {
	case semel.CodeConflict:
		p.Status = h.route.Profile.ConflictStatus
	case semel.CodeOtherCaller:
		p = otherCaller(unproved)
	case semel.CodeHeld:
		p = held(ans.Record.HeldReason, ans.RetryAfter)
	case semel.CodeSuperseded:
		p.last = ans.Record.Sequence
	case semel.CodeSequenceGap:
		p.expected = ans.Record.Sequence
	case semel.CodeThrottled:
		m, _ := door.Lookup(e.Code)
		p.Detail = refusal.Sentence(e.Message) + " Nothing was executed. " + m.HTTPAction()
	}
	if door.Names(ans) {
		p.reference = reference.Of(ans.Record.ID)
	}
	return p
}

// keyMissing returns the refusal of a request without a key.
func (h *handler) keyMissing() problem {
	detail := "This operation needs the header " + h.route.KeyHeader + " with a key that is unique to this request and the same in all its retries, such as a UUID. Nothing was executed."
	if h.ownKey {
		detail = h.extract.Missing()
	}
	return because(door.CodeKeyMissing, detail)
}

func unavailable() problem { return problemOf(semel.CodeStoreUnavailable) }

func unrecorded() problem {
	return because(semel.CodeUnknown, "The request was executed, but its outcome could not be recorded yet. Send the same request again later to get it.")
}

func leaseLost() problem {
	p := because(semel.CodeLeaseLost, "The execution of this request was taken over or settled by another. Send the same request again to get the outcome.")
	p.RetryAfter = time.Second
	return p
}

func held(why string, retryAfter time.Duration) problem {
	m, _ := door.Lookup(semel.CodeHeld)
	p := because(semel.CodeHeld, m.Meaning)
	if why != "" {
		p.Detail += " What is known: " + why + "."
	}
	p.RetryAfter = max(retryAfter, time.Second)
	return p
}

func notKept(rec *semel.Record, status int) problem {
	if rec.OnlyNamed() {
		return because(semel.CodeResultNotKept, "The request was answered at "+rec.EndedAt.String()+" ("+rec.Disposition.String()+"), and the answer was kept until "+rec.AnswerUntil().String()+". The request will not be executed again.")
	}
	if rec.Settled != nil && status < 200 {
		return because(semel.CodeResultNotKept, "The request was settled as completed, and its answer isn't known. The request will not be executed again.")
	}
	detail := "The request was executed"
	if status >= 200 {
		detail += " and answered with status " + strconv.Itoa(status)
	}
	return because(semel.CodeResultNotKept, detail+", but the answer was given once and not kept. The request will not be executed again.")
}

// settledAsFailed returns the refusal for calls that somebody settled as failed, without an
// HTTP answer.
func settledAsFailed(rec *semel.Record) problem {
	code := semel.CodeFailed
	if rec.Disposition == semel.DispositionRejected {
		code = semel.CodeRejected
	}
	p := because(code, "This request was settled as "+string(code)+" and will not be executed again.")
	if f := rec.Failure; f != nil && f.Message != "" {
		p.Detail += " " + refusal.Sentence(f.Message)
	}
	return p
}
