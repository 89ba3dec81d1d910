package api

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/internal/body"
	refusal "github.com/semelhq/semel/internal/problem"
	"github.com/semelhq/semel/internal/wire"
)

type problem struct {
	wire.Problem
	header http.Header
}

// Error makes a problem an error.
func (p *problem) Error() string { return string(p.Code) + ": " + p.Detail }

// GetStatus implements [huma.StatusError].
func (p *problem) GetStatus() int { return p.Status }

// ContentType implements [huma.ContentTypeFilter].
func (p *problem) ContentType(string) string { return refusal.Type }

// GetHeaders implements [huma.HeadersError].
func (p *problem) GetHeaders() http.Header { return p.header }

// newProblem makes a problem from the table. An empty detail means the table's.
func (a *API) newProblem(code semel.Code, detail string) *problem {
	info, _ := door.Lookup(code)
	if detail == "" {
		detail = info.Meaning
	}
	var action semelhttp.Action
	if code == semel.CodeOtherCaller {
		action = semelhttp.ActionFirstCredential
	}
	p := &problem{Problem: wire.Problem{
		Action: string(action), Type: a.opts.BaseURL + "/problems/" + string(info.Code), Title: info.Title, Status: info.Status, Detail: refusal.Sentence(detail), Code: info.Code,
	}}
	if info.Effect != "" {
		p.set(door.EffectHeader, info.Effect)
	}
	return p
}

func (a *API) invalid(location, message string) *problem {
	p := a.newProblem(semel.CodeInvalidCall, message)
	p.Errors = []wire.Mistake{{Location: location, Message: message}}
	return p
}

func (p *problem) after(d time.Duration) *problem {
	if d > 0 {
		p.RetryAfter = refusal.Seconds(d)
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

// retryUnavailable is how long a caller should wait if the store doesn't answer.
const retryUnavailable = time.Second

// problemOf turns an error of the engine into a problem, without what isn't for callers.
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
		return a.newProblem(door.CodeInternal, "")
	}
	if inner, ok := errors.AsType[*semel.Error](e.Err); ok && e.Code == semel.CodeStoreUnavailable && inner.Code == semel.CodeInvalidCall {
		e = inner // the store refused the call, such as a cursor of another query
	}
	m, _ := door.Lookup(e.Code)
	return a.newProblem(e.Code, e.Message).after(max(e.RetryAfter, m.Retry))
}

// write sends the problem where huma doesn't.
func (p *problem) write(w http.ResponseWriter) {
	body, err := json.Marshal(p)
	if err != nil {
		panic(err) // strings and numbers always have a JSON form
	}
	maps.Copy(w.Header(), p.header)
	refusal.WriteBody(w, p.Status, refusal.Type, append(body, '\n')) // huma ends its answers so
}

// The members of the metadata of an operation.
const (
	apiKey      = "semel.api"      // the API
	deliversKey = "semel.delivers" // true: its requests deliver calls
)

var delivers = map[string]any{deliversKey: true}

// hookHuma turns huma's own refusals into problems, and makes its validation strict. Both
// settings are global.
var hookHuma = sync.OnceFunc(func() {
	huma.ValidateStrictCasing = true
	huma.NewError = func(status int, msg string, errs ...error) huma.StatusError {
		return (&API{}).refusal(status, msg, errs)
	}
	huma.NewErrorWithContext = func(ctx huma.Context, status int, msg string, errs ...error) huma.StatusError {
		a, _ := ctx.Operation().Metadata[apiKey].(*API)
		if a == nil {
			return (&API{}).refusal(status, msg, errs)
		}
		p := a.refusal(status, msg, errs)
		// huma notices a form that nobody offers only after the request was answered and
		// reported.
		if status != http.StatusNotAcceptable && !slices.ContainsFunc(errs, func(err error) bool { return errors.Is(err, body.ErrRefused) }) {
			r, _ := humago.Unwrap(ctx)
			a.refused(ctx.Operation(), r, p)
		}
		return p
	}
})

// maxMistakes bounds the mistakes in an answer, which should not be larger than its request.
const maxMistakes = 20

func (a *API) refusal(status int, msg string, errs []error) *problem {
	code := door.CodeInternal
	switch status {
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		code = semel.CodeInvalidCall
	case http.StatusNotAcceptable:
		code = door.CodeNotAcceptable
	case http.StatusRequestEntityTooLarge:
		code, msg = door.CodeTooLarge, ""
	case http.StatusUnsupportedMediaType:
		code, msg, errs = door.CodeUnsupportedMedia, "", nil
	case http.StatusRequestTimeout:
		code, msg = semelhttp.CodeBodyUnreadable, "the body did not arrive in time"
	case http.StatusInternalServerError:
		switch {
		case slices.ContainsFunc(errs, func(err error) bool { return errors.Is(err, body.ErrTooLong) }):
			code = door.CodeTooLarge
		case msg == "cannot read request body":
			code = semelhttp.CodeBodyUnreadable
		}
		msg, errs = "", nil
	}
	p := a.newProblem(code, msg)
	for _, err := range errs {
		// Without the value: it may be a secret.
		if d, ok := err.(huma.ErrorDetailer); ok && len(p.Errors) < maxMistakes {
			p.Errors = append(p.Errors, wire.Mistake{Location: d.ErrorDetail().Location, Message: d.ErrorDetail().Message})
		}
	}
	if len(p.Errors) > 0 {
		first := p.Errors[0]
		p.Detail = refusal.Sentence("The request is not valid: " + first.Location + ": " + first.Message)
	}
	return p
}
