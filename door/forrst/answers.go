package forrst

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/internal/engine/callctx"
	"github.com/semelhq/semel/internal/problem"
)

// decided answers a delivery that doesn't execute.
func decided(r *Request, ans *semel.Answer) answer {
	if ans.Decision == semel.Replay {
		return replay(r, ans.Record)
	}
	code, _ := ans.Decision.Code()
	a := decidedBy(r, ans, code)
	a.code = code
	return a
}

// decidedBy returns the refusal of a delivery, with the code of its decision.
func decidedBy(r *Request, ans *semel.Answer, code semel.Code) answer {
	switch code {
	case semel.CodeConflict:
		a := refused(one(IdempotencyConflict, nil, "Idempotency key already used with different arguments").detailed(struct {
			Key  string `json:"key"`
			Hash string `json:"original_arguments_hash,omitempty"`
		}{r.Key, ans.Record.Attributes[attributeArguments]}))
		a.data = r.data(statusConflict, ans.Record)
		return a
	case semel.CodeInFlight, semel.CodeHeld:
		return processing(r, ans.Record, ans.RetryAfter)
	case semel.CodeThrottled:
		e := one(RateLimited, nil, "Too many requests. Nothing was executed").detailed(map[string]any{"retry_after": seconds(ans.RetryAfter)})
		e[0].RetryAfter = ans.RetryAfter
		return refused(e)
	case semel.CodeTooLate:
		return refused(reason(Gone, code, r.Key))
	case semel.CodeOtherCaller, semel.CodeOtherDoor, semel.CodeSuperseded, semel.CodeSequenceGap:
		return refused(reason(Conflict, code, r.Key))
	}
	return refused(reason(InternalError, code, r.Key)) // for lack of a code of Forrst's own
}

// reason returns errors with one of Semel's codes and the key in their details, because Forrst
// has no word of its own for the reason.
func reason(code Code, why semel.Code, key string) Errors {
	m, _ := door.Lookup(why)
	return one(code, nil, "%s", strings.TrimSuffix(m.Detail(), ".")).detailed(struct {
		Key    string     `json:"key,omitempty"`
		Reason semel.Code `json:"reason"`
	}{key, why})
}

// processing returns the answer while nobody knows the outcome yet (FOR-PROC.1).
func processing(r *Request, rec *semel.Record, after time.Duration) answer {
	details := struct {
		Key        string   `json:"key,omitempty"`
		RetryAfter Duration `json:"retry_after"`
		Reason     string   `json:"reason,omitempty"`
	}{Key: r.Key, RetryAfter: seconds(after)}
	e := one(IdempotencyProcessing, nil, "Previous request with this key is still processing")
	if rec.Held {
		details.Reason = "outcome_unknown"
		e[0].Message = "Previous request with this key was executed at least in part, and its outcome is not known. It is not executed again until that is settled"
	}
	e[0].Details, e[0].RetryAfter = details, after
	a := refused(e)
	a.code = semel.CodeInFlight
	if rec.Held {
		a.code = semel.CodeHeld
	}
	a.data = r.data(statusProcessing, rec)
	return a
}

// replay answers with the recorded outcome.
func replay(r *Request, rec *semel.Record) answer {
	notKept := refused(reason(Gone, semel.CodeResultNotKept, r.Key))
	notKept.code = semel.CodeResultNotKept
	var a answer
	var recorded recordedErrors
	switch {
	case rec.Result.Tombstone:
		return notKept
	case rec.State == semel.Completed && json.Valid(rec.Result.Data):
		a = answer{status: http.StatusOK, result: rec.Result.Data}
	case rec.State == semel.Completed:
		// Somebody settled it, such as a reconciler that speaks HTTP.
		said, ok := semelhttp.ParseAnswer(rec.Result)
		if !ok || !json.Valid(said.Body) {
			return notKept
		}
		a = answer{status: http.StatusOK, result: said.Body}
	case json.Unmarshal(rec.Result.Data, &recorded) == nil && recorded.Status >= 400 && recorded.Status < 600 && len(recorded.Errors) > 2:
		a = answer{status: recorded.Status, errors: recorded.Errors}
	default:
		a = settled(rec)
	}
	a.data = r.data(statusCached, rec)
	return a
}

// settled returns the answer for a call that somebody settled as failed without errors.
func settled(rec *semel.Record) answer {
	e := one(InternalError, nil, "The call was settled as failed")
	if rec.Disposition == semel.DispositionRejected {
		e = one(Conflict, nil, "The call was settled as rejected")
	}
	if f := rec.Failure; f != nil && f.Message != "" {
		e[0].Message += ". " + problem.Sentence(f.Message)
	}
	a := refused(e)
	a.retry, a.code = nil, "" // trying again would only get this answer
	return a
}

func unavailable() Errors {
	e := one(Unavailable, nil, "It can't be determined at the moment whether this request was seen before. Nothing was executed for it. Send it again later")
	e[0].RetryAfter = time.Second
	return e
}

// unrecorded returns the answer if the outcome isn't durable.
func unrecorded(r *Request, rec *semel.Record, err error) answer {
	if errors.Is(err, semel.ErrLeaseLost) {
		return processing(r, rec, time.Second) // another attempt took it over, or somebody settled it
	}
	a := refused(one(Unavailable, nil, "The function was executed, but its outcome could not be recorded yet. Send the same request again later to get it"))
	a.code = semel.CodeUnknown
	if r.idempotency == nil {
		a.retry = nil // a retry would be another call
	}
	return a
}

// undecided answers a request about which the engine decided nothing.
func (s *Service) undecided(ctx context.Context, r *Request, err error) answer {
	e, _ := errors.AsType[*semel.Error](err)
	switch {
	case e != nil && e.Code == semel.CodeInvalidCall:
		at := At("call")
		if x := r.idempotency; x != nil && x.ttl != 0 {
			at = At("extensions", strconv.Itoa(x.index), "options", "ttl")
		}
		return refused(one(InvalidArguments, at, "%s", problem.Sentence(e.Message)))
	case e != nil && e.Code == semel.CodeForbidden:
		return refused(one(Forbidden, nil, "The caller may not see the result of this call"))
	}
	if !callctx.HungUp(ctx, err) {
		s.reportError(err)
	}
	a := refused(unavailable())
	a.code = semel.CodeStoreUnavailable
	return a
}
