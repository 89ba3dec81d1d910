package ids

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/internal/body"
	"github.com/semelhq/semel/internal/problem"
)

// ServeHTTP serves commands over HTTP:
//
//	POST {StatusURL}                 delivers an envelope
//	GET  {StatusURL}/{id}            returns the state of a command
//	POST {StatusURL}/{id}/compensate undoes one that was executed
//
// Answers about commands are a [Response]. For a delivery the HTTP status repeats its
// status: 200 executed or compensated, 202 processing, 422 rejected, 428 to be
// confirmed, 500 failed, 503 not executed and worth another delivery. A GET returns 200.
// All other errors are problem documents (RFC 9457).
//
// A body is JSON in UTF-8, of up to [MaxEnvelope] bytes and without a content coding.
// Its Content-Type may be left out.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	rest, ok := strings.CutPrefix(r.URL.Path, g.path())
	if !ok || rest != "" && rest[0] != '/' {
		g.refuse(w, semel.ErrNotFound)
		return
	}
	id, action, _ := strings.Cut(strings.TrimPrefix(rest, "/"), "/")
	var serve func(Caller, http.ResponseWriter, *http.Request, string) (*Response, error)
	methods := []string{http.MethodPost}
	switch {
	case id == "" && action == "":
		serve = g.serveCommand
	case action == "":
		serve, methods = g.serveStatus, []string{http.MethodGet, http.MethodHead}
	case action == "compensate":
		serve = g.serveCompensate
	default:
		g.refuse(w, semel.ErrNotFound)
		return
	}
	if !slices.Contains(methods, r.Method) {
		w.Header().Set("Allow", strings.Join(methods, ", "))
		writeProblem(w, problemOf(door.CodeMethodNotAllowed, "Use "+methods[0]+" here."))
		return
	}
	caller, err := g.identify(r)
	if err != nil {
		door.Tell(r.Context(), g.engine.Internal(), Name, r.Header, func(context.Context) (semel.Delivered, bool) {
			e := refusedEvent(&semel.Error{Code: door.CodeUnauthorized})
			e.Err = err
			return e, true
		})
		w.Header().Set("WWW-Authenticate", "Bearer")
		writeProblem(w, problemOf(door.CodeUnauthorized, "The server does not know who is calling."))
		return
	}
	resp, err := serve(caller, w, r, id)
	if err != nil {
		g.refuse(w, err)
		return
	}
	status := http.StatusOK
	if r.Method == http.MethodPost {
		status = resp.httpStatus()
	}
	g.write(w, status, resp)
}

func (g *Gateway) identify(r *http.Request) (Caller, error) {
	if g.opts.Identify == nil {
		return Caller{}, errors.New("ids: a gateway without Identify knows nobody")
	}
	return g.opts.Identify(r)
}

// path is the path of StatusURL, which may be a full URL.
func (g *Gateway) path() string {
	if _, after, ok := strings.Cut(g.opts.StatusURL, "://"); ok {
		_, path, found := strings.Cut(after, "/")
		if !found {
			return ""
		}
		return "/" + path
	}
	return g.opts.StatusURL
}

func (g *Gateway) serveCommand(caller Caller, w http.ResponseWriter, r *http.Request, _ string) (*Response, error) {
	return g.serve(r.Context(), r.Header, caller, func() (Command, error) {
		text, err := readBody(w, r)
		if err != nil {
			return Command{}, err
		}
		return ParseCommand(text)
	})
}

func (g *Gateway) serveStatus(caller Caller, _ http.ResponseWriter, r *http.Request, id string) (*Response, error) {
	return g.Status(r.Context(), caller, id)
}

func (g *Gateway) serveCompensate(caller Caller, w http.ResponseWriter, r *http.Request, id string) (*Response, error) {
	text, err := readBody(w, r)
	if err != nil {
		return nil, err
	}
	reason, err := parseReason(text)
	if err != nil {
		return nil, err
	}
	return g.Compensate(r.Context(), caller, id, reason)
}

// unended reports whether the command is in progress or held.
func (r *Response) unended() bool {
	return r.Status == StatusProcessing || r.Status == StatusInProgress
}

// httpStatus is the status of HTTP for a response.
func (r *Response) httpStatus() int {
	switch {
	case r.unended():
		return http.StatusAccepted
	case r.Status == StatusRejected:
		return http.StatusUnprocessableEntity
	case r.Status == StatusUnconfirmed:
		return http.StatusPreconditionRequired
	case r.Reason == string(semel.CodeAborted) || r.Reason == "abandoned":
		return http.StatusServiceUnavailable
	case r.Status == StatusFailed:
		return http.StatusInternalServerError
	}
	return http.StatusOK
}

// write writes a response. All deliveries of a command get the same bytes, except for
// the decision.
func (g *Gateway) write(w http.ResponseWriter, status int, r *Response) {
	if r.Decision == DuplicateReplayed {
		w.Header().Set("Idempotency-Replayed", "true")
	}
	if r.StatusURL != "" && r.unended() {
		w.Header().Set("Location", r.StatusURL)
	}
	if r.Type == evidence.TypeAborted {
		door.SetEffect(w.Header(), door.EffectNone)
	}
	if r.unended() || status == http.StatusServiceUnavailable {
		problem.RetryAfter(w.Header(), r.RetryAfter)
	}
	problem.WriteAs(w, status, "application/json", r)
}

// commandProblem is a refusal with the faults of the envelope.
type commandProblem struct {
	semelhttp.Problem
	Errors []*Error `json:"errors,omitempty"`
}

// codeOf is the code of a refusal because of an error.
func codeOf(err error) semel.Code {
	wrong := envelopeErrors(err)
	e, ours := errors.AsType[*semel.Error](err)
	switch {
	case errors.Is(err, errTooLarge):
		return door.CodeTooLarge
	case errors.Is(err, errMedia):
		return door.CodeUnsupportedMedia
	case len(wrong) > 0 && wrong[0].Reason == ReasonCommand:
		return semel.CodeUnknownOperation
	case len(wrong) > 0:
		return semel.CodeInvalidCall
	case ours:
		return e.Code
	}
	return door.CodeInternal
}

// refuse writes an error as a problem. Nothing was executed, unless the problem says so.
func (g *Gateway) refuse(w http.ResponseWriter, err error) {
	if errors.Is(err, body.ErrRefused) {
		return
	}
	p := problemOf(codeOf(err), "")
	p.Errors = envelopeErrors(err)
	e, ours := errors.AsType[*semel.Error](err)
	var retry time.Duration
	switch {
	case p.Code == door.CodeTooLarge || p.Code == door.CodeUnsupportedMedia:
		p.Detail = "Nothing was executed: " + err.Error() + "."
	case len(p.Errors) > 0:
		p.Title, p.Detail = "Invalid envelope", "Nothing was executed: "+p.Errors[0].Error()+"."
		if p.Code == semel.CodeUnknownOperation {
			p.Title = "Unknown command"
		}
	case !ours:
		p.Detail = "The command could not be answered. Deliver it again: it is executed once at most."
	case e.Code == semel.CodeNotFound:
		p.Detail = "There is no such command, or it is of another caller."
	default:
		p.Detail, retry = cmp.Or(e.Message, p.Detail), e.RetryAfter
	}
	if p.Status == http.StatusServiceUnavailable || retry > 0 {
		p.RetryAfter = problem.RetryAfter(w.Header(), retry)
	}
	writeProblem(w, p)
}

// problemOf is a code as package door explains it, with the table's words if detail is empty.
func problemOf(code semel.Code, detail string) *commandProblem {
	m, _ := door.Lookup(code)
	return &commandProblem{Problem: semelhttp.Problem{
		Type: "/problems/" + string(m.Code), Code: m.Code, Title: m.Title, Status: m.Status, Detail: cmp.Or(detail, m.HTTPDetail()),
	}}
}

// envelopeErrors takes a joined error apart.
func envelopeErrors(err error) []*Error {
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		var list []*Error
		for _, one := range many.Unwrap() {
			list = append(list, envelopeErrors(one)...)
		}
		return list
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return []*Error{e}
	}
	return nil
}

func writeProblem(w http.ResponseWriter, p *commandProblem) {
	if m, known := door.Lookup(p.Code); known {
		door.SetEffect(w.Header(), m.Effect)
	}
	problem.Write(w, p.Status, p)
}
