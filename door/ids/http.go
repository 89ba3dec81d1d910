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
	"github.com/semelhq/semel/store"
)

// ServeHTTP serves commands over HTTP:
//
//	POST {StatusURL}                 delivers an envelope
//	GET  {StatusURL}/{id}            returns the state of a command
//	POST {StatusURL}/{id}/compensate undoes one that was executed
//
// Answers about commands are a [Response]. For a delivery the HTTP status reflects its status:
// 200 executed or compensated, 202 processing, 422 rejected, 428 to be confirmed, 500 failed,
// 503 not executed and worth another delivery. A GET returns 200. All other errors are problem
// documents (RFC 9457).
//
// A body is JSON in UTF-8, of up to [MaxEnvelope] bytes and without a content coding. Its
// Content-Type may be left out.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	rest, ok := strings.CutPrefix(r.URL.Path, g.path())
	if !ok || rest != "" && rest[0] != '/' {
		g.refuse(w, semel.ErrNotFound)
		return
	}
	id, action, _ := strings.Cut(strings.TrimPrefix(rest, "/"), "/")
	var serve func(Caller) (*Response, error)
	methods := []string{http.MethodPost}
	switch {
	case id == "" && action == "":
		serve = func(c Caller) (*Response, error) { return g.serveCommand(c, w, r) }
	case action == "":
		methods = []string{http.MethodGet, http.MethodHead}
		serve = func(c Caller) (*Response, error) { return g.Status(r.Context(), c, id) }
	case action == "compensate":
		serve = func(c Caller) (*Response, error) { return g.serveCompensate(c, w, r, id) }
	default:
		g.refuse(w, semel.ErrNotFound)
		return
	}
	if !slices.Contains(methods, r.Method) {
		w.Header().Set("Allow", strings.Join(methods, ", "))
		writeProblem(w, problemOf(door.CodeMethodNotAllowed, "Use "+methods[0]+" here."))
		return
	}
	caller, err := g.opts.Identify(r)
	if err != nil {
		door.Tell(r.Context(), g.engine.Internal(), Name, r.Header, func(context.Context) (semel.Delivered, bool) {
			return refusedEvent(&semel.Error{Code: door.CodeUnauthorized, Err: err}), true
		})
		w.Header().Set("WWW-Authenticate", "Bearer")
		writeProblem(w, problemOf(door.CodeUnauthorized, "The server does not know who is calling."))
		return
	}
	resp, err := serve(caller)
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

// path returns the path of StatusURL, which may be a full URL.
func (g *Gateway) path() string {
	if _, after, ok := strings.Cut(g.opts.StatusURL, "://"); ok {
		return after[strings.Index(after+"/", "/"):]
	}
	return g.opts.StatusURL
}

func (g *Gateway) serveCommand(caller Caller, w http.ResponseWriter, r *http.Request) (*Response, error) {
	return g.serve(r.Context(), r.Header, caller, func() (Command, error) {
		text, err := readBody(w, r)
		if err != nil {
			return Command{}, err
		}
		return ParseCommand(text)
	})
}

func (g *Gateway) serveCompensate(caller Caller, w http.ResponseWriter, r *http.Request, id string) (*Response, error) {
	reason, err := readReason(w, r)
	if err != nil {
		return nil, err
	}
	return g.Compensate(r.Context(), caller, id, reason)
}

// unended reports whether the command is in progress or held.
func (r *Response) unended() bool {
	return r.Status == StatusProcessing || r.Status == StatusInProgress
}

// httpStatuses are the HTTP statuses that aren't 200.
var httpStatuses = map[Status]int{
	StatusProcessing: http.StatusAccepted, StatusInProgress: http.StatusAccepted, StatusFailed: http.StatusInternalServerError,
	StatusRejected: http.StatusUnprocessableEntity, StatusUnconfirmed: http.StatusPreconditionRequired,
}

func (r *Response) httpStatus() int {
	if r.Status == StatusFailed && (r.Reason == string(semel.CodeAborted) || r.Reason == "abandoned") {
		return http.StatusServiceUnavailable
	}
	return cmp.Or(httpStatuses[r.Status], http.StatusOK)
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
	code := r.code()
	if status == http.StatusServiceUnavailable {
		code = semel.CodeAborted // or abandoned: another delivery runs
	}
	problem.WriteAs(w, status, "application/json", answered{r, door.ActionOf(code, status)})
}

// answered is a response with what a program does next, if it has no outcome.
type answered struct {
	*Response
	Action store.Action `json:"action,omitempty"`
}

// commandProblem is a refusal that lists the faults of the envelope.
type commandProblem struct {
	semelhttp.Problem
	Errors []*Error `json:"errors,omitempty"`
}

// refusalOf explains an error to the caller, and says when to deliver again if the error does.
func refusalOf(err error) (p *commandProblem, retry time.Duration) {
	wrong := envelopeErrors(err)
	e, ours := errors.AsType[*semel.Error](err)
	switch {
	case len(wrong) > 0:
		code, title := semel.CodeInvalidCall, "Invalid envelope"
		if wrong[0].Reason == ReasonCommand {
			code, title = semel.CodeUnknownOperation, "Unknown command"
		}
		p = problemOf(code, "Nothing was executed: "+wrong[0].Error()+".")
		p.Title, p.Errors = title, wrong
	case !ours:
		p = problemOf(door.CodeInternal, "The command could not be answered. Deliver it again: it is executed once at most.")
	case e.Code == semel.CodeNotFound:
		p = problemOf(e.Code, "There is no such command, or it is of another caller.")
	default:
		p, retry = problemOf(e.Code, e.Message), e.RetryAfter
	}
	return p, retry
}

// refuse writes an error as a problem. Nothing was executed, unless the problem says so.
func (g *Gateway) refuse(w http.ResponseWriter, err error) {
	if errors.Is(err, body.ErrRefused) {
		return
	}
	p, retry := refusalOf(err)
	if p.Status == http.StatusServiceUnavailable || retry > 0 {
		p.RetryAfter = problem.RetryAfter(w.Header(), retry)
	}
	writeProblem(w, p)
}

// problemOf returns package door's explanation of a code, with the table's words if detail is empty.
func problemOf(code semel.Code, detail string) *commandProblem {
	return &commandProblem{Problem: semelhttp.NewProblem("/problems/", code, detail)}
}

// envelopeErrors splits a joined error.
func envelopeErrors(err error) (list []*Error) {
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		for _, one := range many.Unwrap() {
			list = append(list, envelopeErrors(one)...)
		}
	} else if e, ok := errors.AsType[*Error](err); ok {
		list = append(list, e)
	}
	return list
}

func writeProblem(w http.ResponseWriter, p *commandProblem) {
	if m, known := door.Lookup(p.Code); known {
		door.SetEffect(w.Header(), m.Effect)
	}
	problem.Write(w, p.Status, p)
}
