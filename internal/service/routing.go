package service

import (
	"net/http"
	"net/url"
	"path"
	"strings"

	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/door/semelproxy"
)

// routing finds the route of a request. Patterns and their precedence work as in
// [http.ServeMux], but without its redirects: many clients follow none, and others may send the
// request again without its key.
type routing struct {
	mux     *http.ServeMux
	proxies map[string]*semelproxy.Proxy // by pattern
}

func newRouting() routing {
	return routing{mux: http.NewServeMux(), proxies: map[string]*semelproxy.Proxy{}}
}

// add declares a route. Like the mux, it panics if the pattern is invalid, which the configuration
// has refused.
func (t *routing) add(pattern string, p *semelproxy.Proxy) {
	t.mux.Handle(pattern, p)
	t.proxies[pattern] = p
}

// find is the route for a request, or nil. It cleans the path first, of // and /../ for instance.
func (t *routing) find(r *http.Request) *semelproxy.Proxy {
	_, pattern := t.mux.Handler(r)
	return t.proxies[pattern]
}

// evades reports whether the request isn't guarded now, but would be by another route if
// its path were spelled as an upstream may read it: with /pay;x, /pay%2f or /pay/ one key
// could run again at the upstream of /pay.
func (t *routing) evades(r *http.Request, route *semelproxy.Proxy) bool {
	folded := fold(r.URL.Path)
	if folded == r.URL.Path || route.Guards(r) {
		return false
	}
	other := *r
	other.URL = &url.URL{Host: r.URL.Host, Path: folded}
	found := t.find(&other)
	return found != nil && found != route && found.Guards(r)
}

// fold is a path without parameters, cleaned by [path.Clean]. A backslash counts as a
// slash, as some servers read it.
func fold(p string) string {
	parts := strings.Split(strings.ReplaceAll(p, `\`, "/"), "/")
	for i := range parts {
		parts[i], _, _ = strings.Cut(parts[i], ";")
	}
	return path.Clean("/" + strings.Join(parts, "/"))
}

func (g *generation) serve(w http.ResponseWriter, r *http.Request, route *semelproxy.Proxy) {
	var why string
	switch {
	case g.passesDoor(r.URL.Path):
		why = "Spelled another way, the path of this request belongs to a door of this service, such as a webhook. Nothing was passed on. Send it to the path as it is configured."
	case g.routes.evades(r, route):
		why = "Spelled another way, the path of this request belongs to a route that guards it. Nothing was executed. Send it without a closing slash, parameters after a semicolon, a backslash, or an escaped slash."
	default:
		route.ServeHTTP(w, r)
		return
	}
	g.guard.Refuse(w, r, semelhttp.Profile{}, semelhttp.RefusalOf(door.CodeAmbiguousTarget, why))
}
