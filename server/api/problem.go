package api

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/transport/semelhttp"
)

// problem is a refusal as it is sent (RFC 9457).
type problem struct {
	Type   string `json:"type" format:"uri-reference" doc:"Where the code is explained, on this server." example:"/problems/in_flight"`
	Title  string `json:"title" doc:"Names the problem, the same for every problem with this code."`
	Status int    `json:"status" doc:"The HTTP status."`
	Detail string `json:"detail" doc:"What happened to this request."`
	Code   string `json:"code" doc:"The stable name of the problem." example:"in_flight"`
	Action string `json:"action,omitempty" enum:"use_first_credential" doc:"What a program can do about it."`
	// RetryAfter is rounded up to whole seconds.
	RetryAfter int64       `json:"retry_after,omitempty" doc:"Seconds after which asking again makes sense."`
	Record     string      `json:"record,omitempty" doc:"The record that the problem is about."`
	Challenge  *challenge  `json:"challenge,omitempty" doc:"What confirms the call."`
	Errors     []mistake   `json:"errors,omitempty" nullable:"false" doc:"What is wrong with the request, and where."`
	header     http.Header `json:"-"`
}

// mistake is one thing that is wrong with a request.
type mistake struct {
	Location string `json:"location" doc:"Such as body.items[3].key, query.q or header.Idempotency-Key."`
	Message  string `json:"message"`
}

// Error makes a problem an error.
func (p *problem) Error() string { return p.Code + ": " + p.Detail }

// GetStatus is for huma.
func (p *problem) GetStatus() int { return p.Status }

// ContentType is for huma.
func (p *problem) ContentType(string) string { return semelhttp.ProblemType }

// GetHeaders is for huma.
func (p *problem) GetHeaders() http.Header { return p.header }

// newProblem makes a problem from the table. An empty detail is the table's.
func (a *API) newProblem(code semel.Code, detail string) *problem {
	info := infoFor(code)
	if detail == "" {
		detail = info.Meaning
	}
	var action semelhttp.Action
	if code == semel.CodeOtherCaller {
		action = semelhttp.ActionFirstCredential
	}
	return &problem{
		Action: string(action), Type: a.opts.BaseURL + "/problems/" + string(info.Code), Title: info.Title, Status: info.Status, Detail: sentence(detail), Code: string(info.Code),
	}
}

// invalid is the problem with one mistake.
func (a *API) invalid(location, message string) *problem {
	p := a.newProblem(semel.CodeInvalidCall, message)
	p.Errors = []mistake{{location, message}}
	return p
}

// after says when to ask again.
func (p *problem) after(d time.Duration) *problem {
	if d > 0 {
		p.RetryAfter = max(1, int64((d+time.Second-1)/time.Second))
		p.set("Retry-After", strconv.FormatInt(p.RetryAfter, 10))
	}
	return p
}

func (p *problem) set(name, value string) {
	if p.header == nil {
		p.header = http.Header{}
	}
	p.header.Set(name, value)
}

// retryUnavailable is what a caller waits for a store that does not answer.
const retryUnavailable = time.Second

// problemOf makes a problem of an error of the engine. What is not meant for
// callers, such as a driver's words, stays out of it.
func (a *API) problemOf(err error) *problem {
	if p, ok := errors.AsType[*problem](err); ok {
		return p
	}
	e, ok := errors.AsType[*semel.Error](err)
	switch {
	case ok:
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return a.newProblem(semel.CodeStoreUnavailable, "the request was given up before it was answered").after(retryUnavailable)
	default:
		return a.newProblem(CodeInternal, "")
	}
	if inner, ok := errors.AsType[*semel.Error](e.Err); ok && e.Code == semel.CodeStoreUnavailable && inner.Code == semel.CodeInvalidCall {
		e = inner // the store refused to understand, as a cursor of another query
	}
	p := a.newProblem(e.Code, e.Message)
	retry := e.RetryAfter
	switch e.Code {
	case semel.CodeStoreUnavailable, semel.CodeUnknown, semel.CodeClosed:
		retry = max(retry, retryUnavailable)
	}
	return p.after(retry)
}

// sentence makes one of an error's message.
func sentence(s string) string {
	s = strings.ToUpper(s[:1]) + s[1:]
	if !strings.HasSuffix(s, ".") {
		s += "."
	}
	return s
}

// write sends the problem where huma does not.
func (p *problem) write(w http.ResponseWriter) {
	body, err := json.Marshal(p)
	if err != nil {
		panic(err) // strings and numbers always have a JSON form
	}
	maps.Copy(w.Header(), p.header)
	w.Header().Set("Content-Type", semelhttp.ProblemType)
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(body, '\n')) // a caller that is gone may ask again
}

// apiKey finds the API among the metadata of an operation.
const apiKey = "semel.api"

// hookHuma makes huma's own refusals problems like all others, and its validation
// strict. Both are settings of the whole process.
var hookHuma = sync.OnceFunc(func() {
	huma.ValidateStrictCasing = true
	huma.NewError = func(status int, msg string, errs ...error) huma.StatusError {
		return (&API{}).refusal(status, msg, errs)
	}
	huma.NewErrorWithContext = func(ctx huma.Context, status int, msg string, errs ...error) huma.StatusError {
		a, _ := ctx.Operation().Metadata[apiKey].(*API)
		if a == nil {
			a = &API{}
		}
		return a.refusal(status, msg, errs)
	}
})

// refusal is a problem that huma found.
func (a *API) refusal(status int, msg string, errs []error) *problem {
	code := CodeInternal
	switch status {
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		code = semel.CodeInvalidCall
	case http.StatusNotAcceptable:
		code = CodeNotAcceptable
	case http.StatusRequestEntityTooLarge:
		code, msg = CodeTooLarge, ""
	case http.StatusUnsupportedMediaType:
		code, msg, errs = CodeUnsupportedMedia, "", nil
	case http.StatusRequestTimeout:
		code, msg = semelhttp.CodeBodyUnreadable, "the body did not arrive in time"
	case http.StatusInternalServerError:
		if msg == "cannot read request body" {
			code = semelhttp.CodeBodyUnreadable
		}
		msg, errs = "", nil
	}
	p := a.newProblem(code, msg)
	for _, err := range errs {
		// The value is left out: it may be a secret.
		if d, ok := err.(huma.ErrorDetailer); ok {
			p.Errors = append(p.Errors, mistake{d.ErrorDetail().Location, d.ErrorDetail().Message})
		}
	}
	if len(p.Errors) > 0 {
		first := p.Errors[0]
		p.Detail = sentence("The request is not valid: " + first.Location + ": " + first.Message)
	}
	return p
}
