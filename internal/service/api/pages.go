package api

import (
	_ "embed"
	"html"
	"net/http"
	"strconv"
	"strings"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
)

//go:embed docs/index.html
var docsPage []byte

//go:embed docs/docs.js
var docsScript []byte

//go:embed docs/docs.css
var docsStyle []byte

// pagePolicy lets the pages load their own script and style and talk to this server only.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// pages serves the pages for people. They are the same for all callers, and say nothing about
// calls. The data handler shows the description only to callers who may use the API. The pages
// about problems, and their style, are for everybody who gets a problem.
func (b *builder) pages() {
	serve := func(path, media string, body func() []byte) {
		b.mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			if !b.admin && path != stylePath {
				if _, p := b.api.admit(w, r, NoRole); p != nil {
					p.write(w)
					return
				}
			}
			writePage(w, media, body())
		})
	}
	always := func(body []byte) func() []byte { return func() []byte { return body } }
	serve("/openapi.json", "application/openapi+json", b.spec)
	serve("/docs", "text/html; charset=utf-8", always(docsPage))
	serve("/docs/docs.js", "text/javascript; charset=utf-8", always(docsScript))
	serve(stylePath, "text/css; charset=utf-8", always(docsStyle))
	b.mux.HandleFunc("GET /problems/{code}", b.problemPage)
	b.mux.HandleFunc("GET /problems/{$}", func(w http.ResponseWriter, r *http.Request) { showProblems(w, r, door.Meanings()) })
}

const stylePath = "/docs/docs.css"

func writePage(w http.ResponseWriter, media string, body []byte) {
	h := w.Header()
	h.Set("Content-Type", media)
	h.Set("Content-Security-Policy", pagePolicy)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body) // a reader who is gone may ask again
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
	b.WriteString(`<p><a href="/problems/">All problems</a>, <a href="/docs">API</a></p>
</main>
</html>
`)
	return b.String()
}
