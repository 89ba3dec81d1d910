// Package origin lets browser pages read a guard's answers (CORS): the guard answers duplicates
// itself, and a page that can't read its answers never learns that it has paid.
package origin

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// The headers that let pages of one origin read answers from another.
const (
	Header           = "Origin"
	AllowOrigin      = "Access-Control-Allow-Origin"
	AllowCredentials = "Access-Control-Allow-Credentials"
	ExposeHeaders    = "Access-Control-Expose-Headers"

	allowHeaders  = "Access-Control-Allow-Headers"
	requestMethod = "Access-Control-Request-Method" // only in preflights
)

// Fault says why no page can have an origin; empty if one can.
func Fault(origin string) string {
	u, err := url.Parse(origin)
	switch {
	case err != nil, u.Host == "", u.Scheme+"://"+u.Host != origin, origin != strings.ToLower(origin), strings.Contains(origin, "*"):
		return "which isn't an origin as browsers send it, such as https://shop.example"
	case u.Scheme == "https" && u.Port() == "443", u.Scheme == "http" && u.Port() == "80":
		return "and browsers leave its port out"
	}
	return ""
}

// writer wraps the writer of an answer to a page.
type writer struct {
	http.ResponseWriter
	origin, key, marker string
	preflight           bool
	own                 bool // the handler writes, not the guard
	begun               bool // the status was written
}

// Writer wraps w if the request comes from a page of one of the origins. The page may send
// the header key and read the header marker.
func Writer(w http.ResponseWriter, r *http.Request, origins []string, key, marker string) http.ResponseWriter {
	from := r.Header[Header]
	if len(from) != 1 || !slices.Contains(origins, from[0]) {
		return w
	}
	return &writer{
		ResponseWriter: w, origin: from[0], key: key, marker: marker,
		preflight: r.Method == http.MethodOptions && len(r.Header[requestMethod]) > 0,
	}
}

// Own marks everything written from now on as the handler's own answer.
func Own(w http.ResponseWriter) http.ResponseWriter {
	if o, ok := w.(*writer); ok {
		o.own = true
	}
	return w
}

// WriteHeader lets the page read the answer.
func (w *writer) WriteHeader(status int) {
	if status >= 200 && !w.begun {
		w.begun = true
		w.grant(w.Header())
	}
	w.ResponseWriter.WriteHeader(status)
}

// grant adds the key, and the guard's headers, to what the handler lets the page send and read.
// The page may always read the guard's own answers.
func (w *writer) grant(header http.Header) {
	switch allowed := header[AllowOrigin]; {
	case len(allowed) == 0 && !w.own:
		header[AllowOrigin], header[AllowCredentials] = []string{w.origin}, []string{"true"}
	case len(allowed) != 1 || allowed[0] != w.origin && allowed[0] != "*":
		return
	}
	if !w.own {
		header.Add("Vary", Header)
	}
	if w.preflight {
		header.Add(allowHeaders, w.key)
		return
	}
	header.Add(ExposeHeaders, w.marker+", Retry-After, Link")
}

// Write sends the status first if nobody has.
func (w *writer) Write(p []byte) (int, error) {
	if !w.begun {
		w.WriteHeader(http.StatusOK)
	}
	return w.ResponseWriter.Write(p)
}

// Unwrap lets [http.ResponseController] flush and set deadlines.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }
