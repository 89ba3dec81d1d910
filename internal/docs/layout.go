package docs

import (
	"embed"
	"html"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

//go:embed web
var web embed.FS

// Policy lets a page load its own script, style and pictures, talk to its own server, and send
// the form of its search there. A page needs a script for nothing but the search of a site
// without a server, and the description of the API.
const Policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

// A Form says where readers see the documentation.
type Form struct {
	// Site means files without a server: a script searches, and the pages say the policy.
	Site bool
	// API is the description of the API, as seen from the first page.
	API string
}

var media = map[string]string{
	".html": "text/html; charset=utf-8", ".md": "text/markdown; charset=utf-8", ".txt": "text/plain; charset=utf-8",
	".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml", ".json": "application/json",
}

// Names are all files of the documentation in a form, but for the description of the API.
func (b *Book) Names(f Form) []string {
	names := []string{"api.html", "api.js", "docs.css", "llms.txt", "search.html"}
	if f.Site {
		names = append(names, "search.js", "search.json")
	}
	for _, p := range b.Pages {
		names = append(names, p.url(), p.twin())
	}
	pictures, _ := fs.Glob(b.files, "images/*.svg") // the pattern is right
	return slices.Concat(names, pictures)
}

// File returns one of the files and its media type, or nothing. The query is what somebody
// searches for.
func (b *Book) File(f Form, name, query string) (text []byte, mediaType string) {
	mediaType = media[path.Ext(name)]
	switch name {
	case "docs.css", "api.js", "search.js":
		text, _ = web.ReadFile("web/" + name)
		return text, mediaType
	case "search.json":
		return b.index().JSON(), mediaType
	case "llms.txt":
		return []byte(b.llms()), mediaType
	case "search.html":
		return f.page(b, &Page{Name: "search", Title: "Search"}, b.results(f, query)), mediaType
	case "api.html":
		text, _ = web.ReadFile("web/api.html")
		main := strings.Replace(string(text), `"openapi.json"`, `"`+f.API+`"`, 1)
		if f.Site {
			main = tryIt.ReplaceAllString(main, "")
		}
		return f.page(b, &Page{Name: "api", Title: apiTitle}, main), mediaType
	}
	if p := b.names[strings.TrimSuffix(name, ".html")]; p != nil && path.Ext(name) == ".html" {
		return f.page(b, p, p.html()), mediaType
	}
	if path.Ext(name) != ".md" && path.Ext(name) != ".svg" {
		return nil, ""
	}
	text, err := fs.ReadFile(b.files, path.Clean(name))
	if err != nil {
		return nil, ""
	}
	return text, mediaType
}

const apiTitle = "The API"

// tryIt is what makes no sense where nobody answers.
var tryIt = regexp.MustCompile(`(?m)^<p class="try">.*\n`)

// page puts the text of a page between what all pages have. It is written by hand: a template
// engine finds methods by name, and makes the program half as large again.
func (f Form) page(b *Book, p *Page, main string) []byte {
	root := strings.Repeat("../", strings.Count(p.Name, "/"))
	w := &writer{}
	w.add("<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width\">\n")
	if f.Site {
		policy, _, _ := strings.Cut(Policy, "; frame-ancestors") // which a page can't say
		w.add(`<meta http-equiv="Content-Security-Policy" content="`, policy, "\">\n")
	}
	w.add("<title>", html.EscapeString(p.Title), " – Semel</title>\n<link rel=\"stylesheet\" href=\"", root, "docs.css\">\n")
	if p.file != "" {
		w.add(`<link rel="alternate" type="text/markdown" href="`, root, p.twin(), "\">\n")
	}
	switch {
	case p.Name == "api":
		w.add("<script src=\"api.js\" defer></script>\n")
	case p.Name == "search" && f.Site:
		w.add("<script src=\"search.js\" defer></script>\n")
	}
	w.add(`<header class="top"><a class="home" href="`, root, `index.html">Semel</a> <a class="all" href="#pages">All pages</a>
<form role="search" action="`, root, `search.html"><label for="q">Search</label> <input id="q" name="q" type="search" autocomplete="off" spellcheck="false"> <button>Find</button></form></header>
<div class="columns">
<main>
`, main, "</main>\n")
	b.nav(w, p, root)
	w.add("</div>\n")
	if p.file != "" {
		w.add("<footer><a href=\"", root, p.twin(), "\">This page as Markdown</a>; in a terminal <code>semel docs ", p.Name, "</code></footer>\n")
	}
	w.add("</html>\n")
	return []byte(w.String())
}

type writer struct{ strings.Builder }

func (w *writer) add(parts ...string) {
	for _, part := range parts {
		w.WriteString(part)
	}
}

// nav lists the pages by kind.
func (b *Book) nav(w *writer, at *Page, root string) {
	w.add("<nav id=\"pages\" aria-label=\"Pages\">\n")
	for _, k := range b.Kinds {
		w.add("<h2>", html.EscapeString(k.Title), "</h2>\n<ul>\n")
		for _, p := range k.Pages {
			w.add("<li><a href=\"", root, p.url(), `"`, current(p.Name == at.Name), ">", html.EscapeString(p.Title), "</a>\n")
		}
		if k.Title == "Reference" {
			w.add("<li><a href=\"", root, `api.html"`, current(at.Name == "api"), ">", apiTitle, "</a>\n")
		}
		w.add("</ul>\n")
	}
	w.add("</nav>\n")
}

func current(is bool) string {
	if is {
		return ` aria-current="page"`
	}
	return ""
}

// results are the hits of a search, or of a site a place for them.
func (b *Book) results(f Form, query string) string {
	w := &writer{}
	w.add("<h1>Search</h1>\n")
	if f.Site {
		w.add("<noscript><p>To search, this site needs a script. The list of pages has all of them.</p></noscript>\n<div id=\"hits\" aria-live=\"polite\"></div>\n")
		return w.String()
	}
	hits := b.Search(query)
	pages := " pages"
	if len(hits) == 1 {
		pages = " page"
	}
	w.add("<p>", strconv.Itoa(len(hits)), pages, " for “", html.EscapeString(query), "”</p>\n<ol class=\"hits\">\n")
	for _, h := range hits {
		w.add("<li><a href=\"", html.EscapeString(h.URL), "\">", html.EscapeString(h.name()), "</a>\n<p>", html.EscapeString(h.Excerpt), "</p>\n")
	}
	w.add("</ol>\n")
	return w.String()
}

// llms lists the pages for programs that read, as https://llmstxt.org says.
func (b *Book) llms() string {
	w := &writer{}
	w.add("# Semel\n\n> Exactly-once effects over at-least-once delivery: a Go library, net/http middleware, a reverse proxy, and a service with an API for any language.\n")
	for _, k := range b.Kinds {
		w.add("\n## ", k.Title, "\n\n")
		for _, p := range k.Pages {
			w.add("- [", p.Title, "](", p.twin(), "): ", p.About, "\n")
		}
	}
	w.add("\n## Optional\n\n")
	for _, p := range b.Pages[1:] {
		if p.Kind == "" {
			w.add("- [", p.Title, "](", p.twin(), ")\n")
		}
	}
	return w.String()
}
