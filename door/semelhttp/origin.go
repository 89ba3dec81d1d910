package semelhttp

import (
	"crypto/sha256"
	"net/http"
	"strings"
	"sync"

	"github.com/semelhq/semel/internal/canon"
)

// The headers by which pages of one origin may read answers from another.
const (
	originHeader     = "Origin"
	allowOrigin      = "Access-Control-Allow-Origin"
	allowCredentials = "Access-Control-Allow-Credentials"
	exposeHeaders    = "Access-Control-Expose-Headers"
)

// grant is what a handler allows pages of one origin to read, at one host and path.
type grant struct{ origin, credentials, expose string }

// maxGrant bounds the text of a remembered grant, in bytes.
const maxGrant = 1 << 10

// grantOf is what an answer grants. It reports false if that is nothing.
func grantOf(h http.Header) (grant, bool) {
	g := grant{h.Get(allowOrigin), h.Get(allowCredentials), strings.Join(h[exposeHeaders], ", ")}
	return g, g.origin != "" && len(g.origin)+len(g.credentials)+len(g.expose) <= maxGrant
}

// grants remembers what the guarded handler granted last, by origin, host and path. The
// guard answers duplicates itself, and a page that can't read its answers never learns
// that it has paid. It grants nothing that the handler hasn't: the preflight that
// browsers send before each request with a key is the handler's answer too.
type grants struct {
	mu sync.Mutex
	// Two generations, so that grants that nobody used lately are forgotten.
	young, old map[[32]byte]grant
}

// maxGrants bounds a generation, to about a megabyte.
const maxGrants = 4096

func grantKey(origin, host, path string) [32]byte {
	return sha256.Sum256(canon.Frame(canon.Frame(canon.Frame(nil, origin), host), path))
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

// originWriter is where the answer to a page of another origin goes. It learns from the
// handler's answers what such pages may read, and grants the same in the guard's.
type originWriter struct {
	http.ResponseWriter
	grants *grants
	marker string // the header that marks a replay
	key    [32]byte
	own    bool // the handler writes, not the guard

	begun bool // the status is written
}

// forOrigin wraps w if the request comes from a page.
func (h *handler) forOrigin(w http.ResponseWriter, r *http.Request) http.ResponseWriter {
	origins := r.Header[originHeader]
	if len(origins) != 1 {
		return w
	}
	return &originWriter{
		ResponseWriter: w, grants: &h.guard.grants, marker: h.route.Profile.Marker, key: grantKey(origins[0], r.Host, targetPath(r)),
	}
}

// Learn wraps the writer of a request that a handler answers outside of the guard, such
// as a preflight. So the pages that may read that answer may also read refusals and
// replays.
func (g *Guard) Learn(w http.ResponseWriter, r *http.Request) http.ResponseWriter {
	return handlers(g.plain.forOrigin(w, r))
}

// handlers marks everything that is written from here on as the handler's own answer.
func handlers(w http.ResponseWriter) http.ResponseWriter {
	if o, ok := w.(*originWriter); ok {
		o.own = true
	}
	return w
}

// WriteHeader learns from the handler's answer, or grants the same in the guard's.
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

// apply grants what the recorded answer does, or else what the handler granted last.
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

// Write sends the status first if nobody has.
func (w *originWriter) Write(p []byte) (int, error) {
	if !w.begun {
		w.WriteHeader(http.StatusOK)
	}
	return w.ResponseWriter.Write(p)
}

// Unwrap lets [http.ResponseController] flush and set deadlines.
func (w *originWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
