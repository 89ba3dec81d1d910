package semelhttp

import (
	"crypto/sha256"
	"net/http"
	"strings"
	"sync"
)

// Headers by which pages of one origin may read what comes from another.
const (
	originHeader     = "Origin"
	allowOrigin      = "Access-Control-Allow-Origin"
	allowCredentials = "Access-Control-Allow-Credentials"
	exposeHeaders    = "Access-Control-Expose-Headers"
)

// grant is what a handler lets the pages of one origin read at one host and path.
type grant struct{ origin, credentials, expose string }

// maxGrant bounds the text of a grant that is remembered.
const maxGrant = 1 << 10

// grantOf is what an answer grants. It reports false where that is nothing.
func grantOf(h http.Header) (grant, bool) {
	g := grant{h.Get(allowOrigin), h.Get(allowCredentials), strings.Join(h[exposeHeaders], ", ")}
	return g, g.origin != "" && len(g.origin)+len(g.credentials)+len(g.expose) <= maxGrant
}

// grants remembers what the guarded handler granted last, by origin, host and path. The
// guard answers duplicates in its place, and a page that can't read these never
// learns that it has paid. Nothing is granted that the handler has not: a preflight,
// which browsers send before every request with a key, is an answer of its own.
type grants struct {
	mu sync.Mutex
	// Two generations, so that the one which nobody asked for lately is forgotten.
	young, old map[[32]byte]grant
}

// maxGrants bounds a generation, to about a megabyte.
const maxGrants = 4096

func grantKey(origin, host, path string) [32]byte {
	return sha256.Sum256(frame(frame(frame(nil, origin), host), path))
}

func (g *grants) put(key [32]byte, v grant, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !ok {
		delete(g.young, key)
		delete(g.old, key)
		return
	}
	if g.young == nil || len(g.young) >= maxGrants {
		g.young, g.old = map[[32]byte]grant{}, g.young
	}
	g.young[key] = v
}

func (g *grants) get(key [32]byte) (grant, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	v, ok := g.young[key]
	if !ok {
		v, ok = g.old[key]
	}
	return v, ok
}

// originWriter is where the answer to a page of another origin goes. It learns from
// the handler's answers what such pages may read, and applies it to the guard's.
type originWriter struct {
	http.ResponseWriter
	grants *grants
	marker string // tells a replay
	key    [32]byte
	own    bool // what is written is the handler's answer

	begun bool // the status is written
}

// forOrigin wraps w where the request says that it comes from a page.
func (h *handler) forOrigin(w http.ResponseWriter, r *http.Request) http.ResponseWriter {
	origins := r.Header[originHeader]
	if len(origins) != 1 {
		return w
	}
	return &originWriter{
		ResponseWriter: w, grants: &h.guard.grants, marker: h.route.Profile.Marker, key: grantKey(origins[0], r.Host, targetPath(r)),
	}
}

// Learn wraps where the answer to a request goes that a handler answers outside of
// the guard, such as a preflight, so that refusals and replays can be read by the
// same pages as what it answers.
func (g *Guard) Learn(w http.ResponseWriter, r *http.Request) http.ResponseWriter {
	return handlers(g.plain.forOrigin(w, r))
}

// handlers marks what follows as the handler's own answer.
func handlers(w http.ResponseWriter) http.ResponseWriter {
	if o, ok := w.(*originWriter); ok {
		o.own = true
	}
	return w
}

// WriteHeader learns or applies.
func (w *originWriter) WriteHeader(status int) {
	header := w.Header()
	switch {
	case status < 200 || w.begun:
	case w.own:
		g, ok := grantOf(header)
		w.grants.put(w.key, g, ok)
	default:
		w.apply(header)
	}
	w.begun = w.begun || status >= 200
	w.ResponseWriter.WriteHeader(status)
}

// apply grants what the recorded answer does, or else what is known of the handler.
func (w *originWriter) apply(header http.Header) {
	if len(header[allowOrigin]) == 0 {
		g, ok := w.grants.get(w.key)
		if !ok {
			return
		}
		header[allowOrigin] = []string{g.origin}
		if g.credentials != "" {
			header[allowCredentials] = []string{g.credentials}
		}
		if g.expose != "" {
			header[exposeHeaders] = []string{g.expose}
		}
	}
	header.Add(exposeHeaders, w.marker+", Retry-After, Link")
	header.Add("Vary", originHeader)
}

// Write begins an answer whose status was left out.
func (w *originWriter) Write(p []byte) (int, error) {
	if !w.begun {
		w.WriteHeader(http.StatusOK)
	}
	return w.ResponseWriter.Write(p)
}

// Unwrap lets [http.ResponseController] flush and set deadlines.
func (w *originWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
