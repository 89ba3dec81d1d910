package semelhttp

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// The headers that let pages of one origin read answers from another.
const (
	originHeader     = "Origin"
	allowOrigin      = "Access-Control-Allow-Origin"
	allowCredentials = "Access-Control-Allow-Credentials"
	allowHeaders     = "Access-Control-Allow-Headers"
	exposeHeaders    = "Access-Control-Expose-Headers"
	requestMethod    = "Access-Control-Request-Method" // only preflights have it
)

// faultOfOrigin says why no page has an origin; empty if one can.
func faultOfOrigin(origin string) string {
	u, err := url.Parse(origin)
	switch {
	case err != nil, u.Host == "", u.Scheme+"://"+u.Host != origin, origin != strings.ToLower(origin), strings.Contains(origin, "*"):
		return "which isn't an origin as browsers send it, such as https://shop.example"
	case u.Scheme == "https" && u.Port() == "443", u.Scheme == "http" && u.Port() == "80":
		return "and browsers leave its port out"
	}
	return ""
}

// originWriter is where the answer to a page of one of the route's origins goes. The guard
// answers duplicates itself, and a page that can't read its answers never learns that it
// has paid.
type originWriter struct {
	http.ResponseWriter
	origin, key, marker string
	preflight           bool
	own                 bool // the handler writes, not the guard
	begun               bool // the status is written
}

// forOrigin wraps w if the request comes from a page of one of the route's origins.
func (h *handler) forOrigin(w http.ResponseWriter, r *http.Request) http.ResponseWriter {
	origins := r.Header[originHeader]
	if len(origins) != 1 || !slices.Contains(h.route.Origins, origins[0]) {
		return w
	}
	return &originWriter{
		ResponseWriter: w, origin: origins[0], key: h.route.KeyHeader, marker: h.route.Profile.Marker,
		preflight: r.Method == http.MethodOptions && len(r.Header[requestMethod]) > 0,
	}
}

// ForPage wraps the writer of a request that a handler answers outside of the guard: the
// answer is completed for pages of the route's Origins as that of a guarded handler is.
func (i *Inspector) ForPage(w http.ResponseWriter, r *http.Request) http.ResponseWriter {
	return handlers(i.h.forOrigin(w, r))
}

// handlers marks everything that is written from here on as the handler's own answer.
func handlers(w http.ResponseWriter) http.ResponseWriter {
	if o, ok := w.(*originWriter); ok {
		o.own = true
	}
	return w
}

// WriteHeader lets the page read what it needs.
func (w *originWriter) WriteHeader(status int) {
	if status >= 200 && !w.begun {
		w.begun = true
		w.grant(w.Header())
	}
	w.ResponseWriter.WriteHeader(status)
}

// grant adds the key, and the headers of the guard, to what the handler lets the page send
// and read. The page may read the guard's own answers in any case.
func (w *originWriter) grant(header http.Header) {
	switch allowed := header[allowOrigin]; {
	case len(allowed) == 0 && !w.own:
		header[allowOrigin], header[allowCredentials] = []string{w.origin}, []string{"true"}
	case len(allowed) != 1 || allowed[0] != w.origin && allowed[0] != "*":
		return
	}
	if !w.own {
		header.Add("Vary", originHeader)
	}
	if w.preflight {
		header.Add(allowHeaders, w.key)
		return
	}
	header.Add(exposeHeaders, w.marker+", Retry-After, Link")
}

// Write sends the status first if nobody has.
func (w *originWriter) Write(p []byte) (int, error) {
	if !w.begun {
		w.WriteHeader(http.StatusOK)
	}
	return w.ResponseWriter.Write(p)
}

// Unwrap lets [http.ResponseController] flush and set deadlines.
func (w *originWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
