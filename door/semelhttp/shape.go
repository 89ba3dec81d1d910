package semelhttp

import (
	"net/http"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	refusal "github.com/semelhq/semel/internal/problem"
)

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

// said is the status that a caller got, and the code if it was a refusal.
type said struct {
	code   semel.Code
	status int
}

// refuse writes a problem in the form of the route's profile, and returns what it says.
func (h *handler) refuse(w http.ResponseWriter, p problem) said {
	profile := &h.route.Profile
	code := string(p.Code)
	if renamed, ok := profile.Codes[p.Code]; ok {
		code = renamed
	}
	media := "application/json"
	var doc any
	switch profile.Shape {
	case ShapeStripe:
		var e stripeError
		e.Error.Type, e.Error.Code, e.Error.Message = stripeType(&p), code, p.Detail
		doc = e
	case ShapeACP:
		doc = acpError{Type: acpType(&p), Code: code, Message: p.Detail}
	case ShapeAdyen:
		doc = adyenError{Status: p.Status, ErrorCode: code, Message: p.Detail, ErrorType: adyenType(&p)}
	default:
		media, doc = ProblemType, h.guard.document(&p, code)
	}
	if profile.RetryHeader != "" && p.Code == semel.CodeHeld {
		w.Header().Set(profile.RetryHeader, "false")
	}
	if profile.TransientHeader != "" && p.RetryAfter > 0 && p.Code != semel.CodeHeld {
		w.Header().Set(profile.TransientHeader, "true")
	}
	if url := h.guard.statusURL(p.reference); url != "" {
		w.Header().Add("Link", "<"+url+`>; rel="status"`)
	}
	if m, known := door.Lookup(p.Code); known && p.effect == "" {
		p.effect = m.Effect
	}
	door.SetEffect(w.Header(), p.effect)
	writeRefusal(w, &p, media, doc)
	return said{p.Code, p.Status}
}

// document is p in the form of RFC 9457.
func (g *Guard) document(p *problem, code string) Problem {
	doc := Problem{
		Type: g.opts.TypeBase + code, Code: semel.Code(code), Title: p.Title, Status: p.Status, Detail: p.Detail, Action: p.action, Limit: p.limit, LastSequence: p.last, ExpectedSequence: p.expected,
		Reference: p.reference, StatusURL: g.statusURL(p.reference),
	}
	if p.reference != "" {
		doc.Instance = callURN + p.reference
	}
	if p.RetryAfter > 0 {
		doc.Retryable = true
		doc.RetryAfter = refusal.Seconds(p.RetryAfter)
	}
	return doc
}

// writeRefusal sends the document and says when asking again makes sense.
func writeRefusal(w http.ResponseWriter, p *problem, media string, doc any) {
	if p.RetryAfter > 0 {
		refusal.RetryAfter(w.Header(), p.RetryAfter)
	}
	refusal.WriteAs(w, p.Status, media, doc)
}

func stripeType(p *problem) string {
	switch {
	case p.Code == semel.CodeConflict, p.Code == semel.CodeInFlight, p.Code == semel.CodeOtherCaller:
		return "idempotency_error"
	case p.Status >= 500:
		return "api_error"
	}
	return "invalid_request_error"
}

func adyenType(p *problem) string {
	switch {
	case p.Code == CodeUnidentified || p.Code == semel.CodeForbidden:
		return "security"
	case p.Status >= 500:
		return "internal"
	}
	return "validation"
}

func acpType(p *problem) string {
	switch {
	case p.Status == http.StatusServiceUnavailable:
		return "service_unavailable"
	case p.Status >= 500:
		return "processing_error"
	}
	return "invalid_request"
}
