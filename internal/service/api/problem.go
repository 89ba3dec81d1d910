package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"html"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/internal/body"
	"github.com/semelhq/semel/internal/docs"
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
	p := &problem{Problem: wire.Problem{
		Type: a.opts.BaseURL + "/problems/" + string(info.Code), Title: info.Title, Status: info.Status,
		Detail: refusal.Sentence(detail), Code: info.Code, Action: info.Do,
	}}
	if info.Effect != "" {
		p.set(door.EffectHeader, info.Effect)
	}
	return p.after(info.Retry)
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

// problemOf turns an error of the engine into a problem, without what isn't for callers.
func (a *API) problemOf(err error) *problem {
	if p, ok := errors.AsType[*problem](err); ok {
		return p
	}
	e, ok := errors.AsType[*semel.Error](err)
	switch {
	case ok:
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return a.newProblem(semel.CodeStoreUnavailable, "the request ended before there was an answer")
	default:
		return a.newProblem(door.CodeInternal, "")
	}
	if inner, ok := errors.AsType[*semel.Error](e.Err); ok && e.Code == semel.CodeStoreUnavailable && inner.Code == semel.CodeInvalidCall {
		e = inner // the store refused the call, such as a cursor of another query
	}
	return a.newProblem(e.Code, e.Message).after(e.RetryAfter)
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
		code, msg = door.CodeBodyUnreadable, "the body did not arrive in time"
	case http.StatusInternalServerError:
		switch {
		case slices.ContainsFunc(errs, func(err error) bool { return errors.Is(err, body.ErrTooLong) }):
			code = door.CodeTooLarge
		case msg == "cannot read request body":
			code = door.CodeBodyUnreadable
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

// pages serves the pages for people. They are the same for all callers, and say nothing about
// calls. The data handler shows the documentation only to callers who may use the API. The pages
// about problems, and their style, are for everybody who gets a problem.
func (b *builder) pages() {
	serve := func(path string, page func(w http.ResponseWriter, r *http.Request)) {
		b.mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			if !b.admin && r.URL.Path != stylePath {
				if _, p := b.api.admit(w, r, NoRole); p != nil {
					p.write(w)
					return
				}
			}
			page(w, r)
		})
	}
	serve("/openapi.json", func(w http.ResponseWriter, _ *http.Request) { writePage(w, "application/openapi+json", b.spec()) })
	serve("/docs/{page...}", func(w http.ResponseWriter, r *http.Request) {
		text, media := docs.Ours().File(docs.Form{API: "../openapi.json"}, cmp.Or(r.PathValue("page"), "index.html"), r.FormValue("q"))
		if media == "" {
			b.api.newProblem(semel.CodeNotFound, "there is no such page; /docs/ lists all").write(w)
			return
		}
		writePage(w, media, text)
	})
	b.mux.HandleFunc("GET /problems/{code}", b.problemPage)
	b.mux.HandleFunc("GET /problems/{$}", func(w http.ResponseWriter, r *http.Request) { showProblems(w, r, door.Meanings()) })
}

const stylePath = "/docs/docs.css"

func writePage(w http.ResponseWriter, media string, body []byte) {
	w.Header().Set("Content-Security-Policy", docs.Policy)
	w.Header().Set("Referrer-Policy", "no-referrer")
	refusal.WriteBody(w, http.StatusOK, media, body)
}

func (b *builder) problemPage(w http.ResponseWriter, r *http.Request) {
	info, ok := door.Lookup(semel.Code(r.PathValue("code")))
	if !ok {
		b.api.newProblem(semel.CodeNotFound, "there is no problem with that code; /problems/ lists all").write(w)
		return
	}
	showProblems(w, r, []door.Meaning{info})
}

// showProblems explains problems, as HTML for browsers and as text for others.
func showProblems(w http.ResponseWriter, r *http.Request, infos []door.Meaning) {
	w.Header().Set("Vary", "Accept")
	if strings.Contains(r.Header.Get("Accept"), "text/html") {
		writePage(w, "text/html; charset=utf-8", []byte(problemsPage(infos)))
		return
	}
	var b strings.Builder
	for i, info := range infos {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(info.Title + " (" + string(info.Code) + ", status " + strconv.Itoa(info.Status) + ")\n\n" +
			info.Meaning + "\n\nWhat to do: " + info.HTTPAction() + "\n")
	}
	writePage(w, "text/plain; charset=utf-8", []byte(b.String()))
}

// problemsPage writes HTML by hand: a template engine finds methods by name, and with one in
// the program the linker keeps every exported method of every library, a third of the binary.
func problemsPage(infos []door.Meaning) string {
	title := "Problems"
	if len(infos) == 1 {
		title = infos[0].Title
	}
	var b strings.Builder
	b.WriteString(`<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>` + html.EscapeString(title) + ` – Semel</title>
<link rel="stylesheet" href="` + stylePath + `">
<main>
`)
	for _, info := range infos {
		b.WriteString("<article>\n<h1>" + html.EscapeString(info.Title) + "</h1>\n" +
			"<p><code>" + html.EscapeString(string(info.Code)) + "</code>, status " + strconv.Itoa(info.Status) + "</p>\n" +
			"<h2>What it means</h2>\n<p>" + html.EscapeString(info.Meaning) + "</p>\n" +
			"<h2>What to do</h2>\n<p>" + html.EscapeString(info.HTTPAction()) + "</p>\n</article>\n")
	}
	b.WriteString(`<p><a href="/problems/">All problems</a>, <a href="/docs/">Documentation</a></p>
</main>
</html>
`)
	return b.String()
}
