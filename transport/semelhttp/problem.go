package semelhttp

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/semelhq/semel"
)

// problem is a refusal, whatever its form on the wire. It is the only thing that
// this package writes by itself, other than replays.
type problem struct {
	status     int
	code       semel.Code
	title      string
	detail     string
	action     Action
	retryAfter time.Duration // zero: asking again is of no use
	reference  string        // of the record; empty if there is none
}

// Action is what the program of a caller can do about a refusal.
type Action string

// ActionFirstCredential: send the request again, or ask for its status, with the
// credential that it was first sent with. A new key would make another call.
const ActionFirstCredential Action = "use_first_credential"

// Problem is a refusal as an RFC 9457 document, for clients and tests that want
// to read one.
type Problem struct {
	// Type is stable: Options.TypeBase and the code.
	Type string `json:"type"`
	// Code is a [semel.Code], or one of this package's.
	Code semel.Code `json:"code"`
	// Title and Detail are for people.
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	// Action is for programs, where there is something that they can do.
	Action Action `json:"action,omitempty"`
	// Instance names the call that the problem is about.
	Instance string `json:"instance,omitempty"`
	// Reference is what the status resource is asked with.
	Reference string `json:"reference,omitempty"`
	// StatusURL is where the state of the call can be asked for.
	StatusURL string `json:"status_url,omitempty"`
	// Retryable says that sending the same request again makes sense.
	Retryable bool `json:"retryable"`
	// RetryAfter is when that is, in seconds.
	RetryAfter int64 `json:"retry_after,omitempty"`
}

// ProblemType is the media type of a [Problem].
const ProblemType = "application/problem+json"

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

// document is p as RFC 9457 has it.
func (g *Guard) document(p *problem, code string) Problem {
	doc := Problem{
		Type: g.opts.TypeBase + code, Code: semel.Code(code), Title: p.title, Status: p.status, Detail: p.detail, Action: p.action,
		Reference: p.reference, StatusURL: g.statusURL(p.reference),
	}
	if p.reference != "" {
		doc.Instance = "urn:semel:call:" + p.reference
	}
	if p.retryAfter > 0 {
		doc.Retryable = true
		doc.RetryAfter = wholeSeconds(p.retryAfter)
	}
	return doc
}

// writeRefusal sends the document with what belongs to every refusal.
func writeRefusal(w http.ResponseWriter, p *problem, media string, doc any) {
	body, err := json.Marshal(doc)
	if err != nil {
		panic(err) // strings and numbers always have a JSON form
	}
	header := w.Header()
	header.Set("Content-Type", media)
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	if p.retryAfter > 0 {
		header.Set("Retry-After", seconds(p.retryAfter))
	}
	setLength(header, len(body))
	w.WriteHeader(p.status)
	_, _ = w.Write(body) // a caller that is gone will ask again
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

// decided is the refusal that a decision stands for. A conflict comes without a
// reference to the other call: all that it shares with this one is the key.
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
	case semel.Expired:
		p.status, p.code, p.title = http.StatusPreconditionFailed, semel.CodeExpired, "Key too old"
		p.detail = "This request was first sent longer ago than answers are kept, so it may have been executed and forgotten. Nothing was executed. Find out what became of it before sending it with a new key."
		return p
	case semel.OtherDoor:
		p.status, p.code, p.title = http.StatusConflict, semel.CodeOtherDoor, "Idempotency key used elsewhere"
		p.detail = "This key was used before through another door of this service. Nothing was executed. Send this request with a new key."
		return p
	case semel.OtherCaller:
		p = otherCaller()
	case semel.Throttled:
		p.status, p.code, p.title = http.StatusTooManyRequests, semel.CodeThrottled, "Too many duplicates"
		p.detail = "This request was repeated too often. Nothing was executed. Send it again later to get the answer."
	}
	p.reference = h.reference(ans.Record.ID)
	return p
}

// otherCaller tells nothing about the call, not even whether the payload is the same.
func otherCaller() problem {
	return problem{
		status: http.StatusConflict, code: semel.CodeOtherCaller, title: "Key used with another credential", action: ActionFirstCredential,
		detail: "This key was used before by a caller with another credential. Nothing was executed for this request, and what became of the first is shown to that credential only. If it was yours and was renewed since, ask for the status with the first one, or find out in another way; a new key would make another call.",
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
		detail: "The request's body is larger than " + strconv.FormatInt(limit, 10) + " bytes" + ". Nothing was executed.",
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
		p.detail += " " + sentence(m)
	}
	return p
}

// sentence makes the message of an error one.
func sentence(s string) string {
	if s == "" {
		return "The call is not valid."
	}
	s = strings.ToUpper(s[:1]) + s[1:]
	if !strings.HasSuffix(s, ".") {
		s += "."
	}
	return s
}
