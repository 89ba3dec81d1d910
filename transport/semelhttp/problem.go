package semelhttp

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/semelhq/semel"
	refusal "github.com/semelhq/semel/internal/problem"
)

// problem is a refusal, whatever its form on the wire. Apart from replays, this package
// writes nothing else by itself.
type problem struct {
	status     int
	code       semel.Code
	title      string
	detail     string
	action     Action
	limit      semel.Limit   // what the request was throttled by
	retryAfter time.Duration // zero: sending it again is pointless
	reference  string        // of the record; empty if there is none
}

// Action is what a caller's program can do about a refusal.
type Action string

// ActionFirstCredential: send the request again, or ask for its status, with the
// credential that you first sent it with. With a new key it would be another call.
const ActionFirstCredential Action = "use_first_credential"

// Problem is a refusal as an RFC 9457 document, for clients and tests that read one.
type Problem struct {
	// Type is stable: Options.TypeBase and the code.
	Type string `json:"type"`
	// Code is a [semel.Code], or one of this package's.
	Code semel.Code `json:"code"`
	// Title and Detail are for people.
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	// Action is what a program can do about it, if anything.
	Action Action `json:"action,omitempty"`
	// Limit is what the request was throttled by, for [semel.CodeThrottled].
	Limit semel.Limit `json:"limit,omitempty"`
	// Instance names the call that the problem is about.
	Instance string `json:"instance,omitempty"`
	// Reference is what you ask the status resource with.
	Reference string `json:"reference,omitempty"`
	// StatusURL is where you can ask for the state of the call.
	StatusURL string `json:"status_url,omitempty"`
	// Retryable says that it makes sense to send the same request again.
	Retryable bool `json:"retryable"`
	// RetryAfter is when that is, in seconds.
	RetryAfter int64 `json:"retry_after,omitempty"`
}

// ProblemType is the media type of a [Problem].
const ProblemType = refusal.Type

type stripeError struct {
	Error struct {
		Type    string `json:"type"`
		Code    string `json:"code,omitempty"`
		Message string `json:"message"`
	} `json:"error"`
}

type acpError struct {
	Type    string `json:"type"`
	Code    string `json:"code"`
	Message string `json:"message"`
}

type adyenError struct {
	Status    int    `json:"status"`
	ErrorCode string `json:"errorCode"`
	Message   string `json:"message"`
	ErrorType string `json:"errorType"`
}

// refuse writes a problem in the form of the route's profile.
func (h *handler) refuse(w http.ResponseWriter, p problem) {
	profile := &h.route.Profile
	code := string(p.code)
	if renamed, ok := profile.Codes[p.code]; ok {
		code = renamed
	}
	media := "application/json"
	var doc any
	switch profile.Shape {
	case ShapeStripe:
		var e stripeError
		e.Error.Type, e.Error.Code, e.Error.Message = stripeType(&p), code, p.detail
		doc = e
	case ShapeACP:
		doc = acpError{Type: acpType(&p), Code: code, Message: p.detail}
	case ShapeAdyen:
		doc = adyenError{Status: p.status, ErrorCode: code, Message: p.detail, ErrorType: adyenType(&p)}
	default:
		media, doc = ProblemType, h.guard.document(&p, code)
	}
	if profile.RetryHeader != "" && p.code == semel.CodeHeld {
		w.Header().Set(profile.RetryHeader, "false")
	}
	if profile.TransientHeader != "" && p.retryAfter > 0 && p.code != semel.CodeHeld {
		w.Header().Set(profile.TransientHeader, "true")
	}
	if url := h.guard.statusURL(p.reference); url != "" {
		w.Header().Add("Link", "<"+url+`>; rel="status"`)
	}
	writeRefusal(w, &p, media, doc)
}

// document is p in the form of RFC 9457.
func (g *Guard) document(p *problem, code string) Problem {
	doc := Problem{
		Type: g.opts.TypeBase + code, Code: semel.Code(code), Title: p.title, Status: p.status, Detail: p.detail, Action: p.action, Limit: p.limit,
		Reference: p.reference, StatusURL: g.statusURL(p.reference),
	}
	if p.reference != "" {
		doc.Instance = callURN + p.reference
	}
	if p.retryAfter > 0 {
		doc.Retryable = true
		doc.RetryAfter = refusal.Seconds(p.retryAfter)
	}
	return doc
}

// writeRefusal sends the document and says when asking again makes sense.
func writeRefusal(w http.ResponseWriter, p *problem, media string, doc any) {
	if p.retryAfter > 0 {
		refusal.RetryAfter(w.Header(), p.retryAfter)
	}
	refusal.WriteAs(w, p.status, media, doc)
}

func stripeType(p *problem) string {
	switch {
	case p.code == semel.CodeConflict, p.code == semel.CodeInFlight, p.code == semel.CodeOtherCaller:
		return "idempotency_error"
	case p.status >= 500:
		return "api_error"
	}
	return "invalid_request_error"
}

func adyenType(p *problem) string {
	switch {
	case p.code == CodeUnidentified || p.code == semel.CodeForbidden:
		return "security"
	case p.status >= 500:
		return "internal"
	}
	return "validation"
}

func acpType(p *problem) string {
	switch {
	case p.status == http.StatusServiceUnavailable:
		return "service_unavailable"
	case p.status >= 500:
		return "processing_error"
	}
	return "invalid_request"
}

// refuseRecord is refuse for a problem with a record.
func (h *handler) refuseRecord(w http.ResponseWriter, rec *semel.Record, p problem) {
	p.reference = h.reference(rec.ID)
	h.refuse(w, p)
}

// decided is the refusal for a decision. A conflict has no reference to the other call:
// all that the two share is the key.
func (h *handler) decided(ans *semel.Answer) problem {
	p := problem{retryAfter: ans.RetryAfter}
	switch ans.Decision {
	case semel.Conflict:
		p.status, p.code, p.title = h.route.Profile.ConflictStatus, semel.CodeConflict, "Idempotency key reused"
		p.detail = "This key was used before with another request. Nothing was executed. Send the first request unchanged, or this one with a new key."
		return p
	case semel.InFlight:
		p.status, p.code, p.title = http.StatusConflict, semel.CodeInFlight, "Request in progress"
		p.detail = "The first request with this key is still being executed. Nothing was executed for this one. Send it again later to get the answer."
	case semel.Held:
		p = held(ans.Record.Held, ans.RetryAfter)
	case semel.TooLate:
		p.status, p.code, p.title = http.StatusPreconditionFailed, semel.CodeTooLate, "Too late"
		p.detail = "This request was first sent longer ago than answers are kept, so it may have been executed and forgotten. Nothing was executed. Find out what became of it before sending it with a new key."
		return p
	case semel.OtherDoor:
		p.status, p.code, p.title = http.StatusConflict, semel.CodeOtherDoor, "Idempotency key used elsewhere"
		p.detail = "This key was used before through another door of this service. Nothing was executed. Send this request with a new key."
		return p
	case semel.OtherCaller:
		p = otherCaller()
	case semel.Throttled:
		p = throttled(ans)
		if ans.Limit != semel.LimitDuplicates { // there is no call to refer to
			return p
		}
	}
	p.reference = h.reference(ans.Record.ID)
	return p
}

func throttled(ans *semel.Answer) problem {
	p := problem{
		status: http.StatusTooManyRequests, code: semel.CodeThrottled, limit: ans.Limit, retryAfter: ans.RetryAfter,
		title: "Too many duplicates", detail: "This request was repeated too often. Nothing was executed. Send it again later to get the answer.",
	}
	if e, ok := errors.AsType[*semel.Error](ans.Err()); ok && ans.Limit != semel.LimitDuplicates {
		p.title = "Quota used up"
		p.detail = refusal.Sentence(e.Message) + " Nothing was executed. Calls that were begun before are still answered. Send this one again later."
	}
	return p
}

// otherCaller says nothing about the call, not even whether the payload is the same.
func otherCaller() problem {
	return problem{
		status: http.StatusConflict, code: semel.CodeOtherCaller, title: "Key used with another credential", action: ActionFirstCredential,
		detail: "This key was used before by a caller with another credential. Nothing was executed for this request, and only that credential shows what happened to the first one. If it was yours and has been renewed, ask for the status with the old one, or find out in another way; a new key would make another call.",
	}
}

func keyMissing(header string) problem {
	return problem{
		status: http.StatusBadRequest, code: CodeKeyMissing, title: "Idempotency key missing",
		detail: "This operation needs the header " + header + " with a key that is unique to this request and the same in all its retries, such as a UUID.",
	}
}

func bodyTooLarge(limit int64) problem {
	return problem{
		status: http.StatusRequestEntityTooLarge, code: CodeBodyTooLarge, title: "Body too large",
		detail: "The request's body is larger than " + strconv.FormatInt(limit, 10) + " bytes. Nothing was executed.",
	}
}

func unavailable() problem {
	return problem{
		status: http.StatusServiceUnavailable, code: semel.CodeStoreUnavailable, title: "Temporarily unavailable",
		detail:     "It can't be determined at the moment whether this request was seen before. Nothing was executed for it. Send the same request again later.",
		retryAfter: time.Second,
	}
}

func unrecorded() problem {
	return problem{
		status: http.StatusServiceUnavailable, code: semel.CodeUnknown, title: "Outcome not recorded yet",
		detail:     "The request was executed, but its outcome could not be recorded yet. Send the same request again later to get it.",
		retryAfter: time.Second,
	}
}

func leaseLost() problem {
	return problem{
		status: http.StatusConflict, code: semel.CodeLeaseLost, title: "Execution taken over",
		detail:     "The execution of this request was taken over or settled by another. Send the same request again to get the outcome.",
		retryAfter: time.Second,
	}
}

func held(why string, retryAfter time.Duration) problem {
	detail := "The request was executed at least in part, and its outcome is not known. It will not be executed again until that is settled."
	if why != "" {
		detail += " What is known: " + why + "."
	}
	return problem{
		status: http.StatusConflict, code: semel.CodeHeld, title: "Outcome unknown", detail: detail, retryAfter: max(retryAfter, time.Second),
	}
}

func notKept(status int) problem {
	detail := "The request was executed"
	if status >= 200 {
		detail += " and answered with status " + strconv.Itoa(status)
	}
	return problem{
		status: http.StatusGone, code: semel.CodeResultNotKept, title: "Answer not kept",
		detail: detail + ", but the answer was given once and not kept. The request will not be executed again.",
	}
}

// settledAsFailed is for calls that somebody settled without an HTTP answer.
func settledAsFailed(rec *semel.Record) problem {
	p := problem{status: http.StatusInternalServerError, code: semel.CodeFailed, title: "Request failed"}
	if rec.Disposition == semel.DispositionRejected {
		p.status, p.code, p.title = http.StatusUnprocessableEntity, semel.CodeRejected, "Request rejected"
	}
	p.detail = "This request was settled as " + string(p.code) + " and will not be executed again."
	if m := rec.Failure.Message; m != "" {
		p.detail += " " + refusal.Sentence(m)
	}
	return p
}
