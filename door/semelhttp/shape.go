package semelhttp

import (
	"net/http"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	refusal "github.com/semelhq/semel/internal/problem"
	"github.com/semelhq/semel/internal/shape"
)

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
		ours := p.Code == semel.CodeConflict || p.Code == semel.CodeInFlight || p.Code == semel.CodeOtherCaller
		doc = shape.Stripe(p.Status, code, p.Detail, ours)
	case ShapeACP:
		doc = shape.ACP(p.Status, code, p.Detail)
	case ShapeAdyen:
		doc = shape.Adyen(p.Status, code, p.Detail, p.Code == door.CodeUnidentified || p.Code == semel.CodeForbidden)
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

// document returns p in the form of RFC 9457.
func (g *Guard) document(p *problem, code string) Problem {
	doc := Problem{
		Type: g.opts.TypeBase + code, Code: semel.Code(code), Title: p.Title, Status: p.Status, Detail: p.Detail,
		Action: door.ActionOf(p.Code, p.Status), Limit: p.limit, LastSequence: p.last, ExpectedSequence: p.expected,
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
