package semelhttp_test

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/store"
)

// compressor says how it codes before the handler runs, as gorilla's CompressHandler does,
// which hides from the handler that the client accepts it, and as gin's gzip did.
func compressor(hide bool, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Vary", "Accept-Encoding")
		if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Encoding", "gzip")
		if hide {
			r.Header.Del("Accept-Encoding")
		}
		zw := gzip.NewWriter(w)
		defer zw.Close()
		next.ServeHTTP(zipped{w, zw}, r)
	})
}

type zipped struct {
	http.ResponseWriter
	packed io.Writer
}

func (z zipped) Write(p []byte) (int, error) { return z.packed.Write(p) }

func (z zipped) WriteHeader(status int) {
	z.Header().Del("Content-Length")
	z.ResponseWriter.WriteHeader(status)
}

func TestCompressorsAroundGuards(t *testing.T) {
	for _, hide := range []bool{true, false} {
		t.Run(fmt.Sprintf("it hides what the client accepts: %t", hide), func(t *testing.T) {
			g := newGuard(t, newEngine(t, nil), nil)
			rt := semelhttp.Route{Operation: semel.Operation{Name: "pay"}, Attributes: map[string]string{"receipt": "answer:/receipt"}}
			s := httptest.NewServer(compressor(hide, g.Handler(rt, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.Header().Add("Vary", "Accept")
				w.WriteHeader(http.StatusCreated)
				_, _ = io.WriteString(w, `{"receipt":"r1"}`)
			}))))
			defer s.Close()
			for i, accepts := range []string{"gzip", "gzip", "identity", "gzip"} {
				r, err := http.NewRequest("POST", s.URL, strings.NewReader("{}"))
				if err != nil {
					t.Fatal(err)
				}
				r.Header.Set("Idempotency-Key", secretKey)
				r.Header.Set("Accept-Encoding", accepts)
				resp, err := http.DefaultTransport.RoundTrip(r)
				if err != nil {
					t.Fatal(err)
				}
				body := io.Reader(resp.Body)
				if resp.Header.Get("Content-Encoding") == "gzip" {
					if body, err = gzip.NewReader(body); err != nil {
						t.Fatalf("delivery %d: %v", i+1, err)
					}
				}
				text, err := io.ReadAll(body)
				if err != nil || resp.StatusCode != 201 || string(text) != `{"receipt":"r1"}` || (resp.Header.Get("Content-Encoding") == "gzip") != (accepts == "gzip") ||
					(resp.Header.Get("Idempotency-Replayed") == "true") != (i > 0) {
					t.Errorf("delivery %d, which accepts %s, got %d %q %v, %v", i+1, accepts, resp.StatusCode, text, resp.Header, err)
				}
				if vary := resp.Header["Vary"]; len(vary) != 2 || !slices.Contains(vary, "Accept-Encoding") || !slices.Contains(vary, "Accept") {
					t.Errorf("delivery %d varies by %q", i+1, vary)
				}
				resp.Body.Close()
			}
			page, err := g.Engine().Search(t.Context(), store.Query{})
			if err != nil || len(page.Records) != 1 || page.Records[0].Attributes["receipt"] != "r1" {
				t.Errorf("the attribute of the answer wasn't found in it: %v", err)
			}
		})
	}
}

// What stands around a guard speaks of one request, and does so again for a replay.
func TestHeadersAroundGuardsAreNotRecorded(t *testing.T) {
	for name, c := range map[string]struct {
		handler string // the language that the handler sets
		first   string
		replay  string
	}{
		"set around it":                 {"", "de", "fr"},
		"set again to the same":         {"de", "de", "fr"},
		"replaced by the handler's own": {"it", "it", "it"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGuard(t, newEngine(t, nil), nil)
			inner := g.Handler(semelhttp.Route{Operation: semel.Operation{Name: "pay"}}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if c.handler != "" {
					w.Header().Set("Content-Language", c.handler)
				}
				_, _ = io.WriteString(w, "ok")
			}))
			h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Language", r.Header.Get("Accept-Language"))
				inner.ServeHTTP(w, r)
			})
			for _, got := range []struct{ lang, want string }{{"de", c.first}, {"fr", c.replay}} {
				w := call(h, secretKey, "{}", func(r *http.Request) { r.Header.Set("Accept-Language", got.lang) })
				if is := w.Header()["Content-Language"]; !slices.Equal(is, []string{got.want}) {
					t.Errorf("who asked in %s got %q, want %q", got.lang, is, got.want)
				}
			}
		})
	}
}

// Each answer is given once with these headers, and again to clients that take gzip or not.
func TestHeadersOfReplays(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		header http.Header
		body   string
		lost   []string // what the replay lacks
		extra  []string // named by the route too
	}{
		"where a result is":             {201, http.Header{"Location": {"/1"}, "Content-Location": {"/1?v=1"}, "Vary": {"Accept", "Accept-Language"}}, "made", nil, nil},
		"what a resource allows":        {405, http.Header{"Allow": {"GET, HEAD"}}, "", nil, nil},
		"a part":                        {206, http.Header{"Content-Range": {"bytes 0-3/9"}}, "part", nil, nil},
		"named by the route as well":    {206, http.Header{"Content-Range": {"bytes 0-3/9"}, "Vary": {"A", "B"}}, "part", nil, []string{"Content-Range", "Vary"}},
		"no content, said to be packed": {204, http.Header{"Content-Encoding": {"gzip"}, "Location": {"/1"}}, "", []string{"Content-Encoding"}, nil},
		"an empty body, said to be":     {201, http.Header{"Content-Encoding": {"gzip"}, "Location": {"/1"}}, "", []string{"Content-Encoding"}, nil},
		"a plain body, said to be":      {201, http.Header{"Content-Encoding": {"gzip"}, "Etag": {`"1"`}}, "plain", []string{"Content-Encoding"}, nil},
		"one that only looks like it":   {201, http.Header{"Content-Encoding": {"gzip"}, "Etag": {`"1"`}}, "\x1f\x8bno", []string{"Content-Encoding"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGuard(t, newEngine(t, nil), nil)
			h := g.Handler(semelhttp.Route{Operation: semel.Operation{Name: "pay"}, KeepHeaders: c.extra}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				for name, values := range c.header {
					w.Header()[name] = slices.Clone(values)
				}
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.body)
			}))
			call(h, secretKey, "{}", nil)
			for _, accepts := range []string{"", "gzip"} {
				w := call(h, secretKey, "{}", func(r *http.Request) { r.Header.Set("Accept-Encoding", accepts) })
				if w.Code != c.status || w.Body.String() != c.body || w.Header().Get("Idempotency-Replayed") != "true" {
					t.Errorf("replayed as %d %q", w.Code, w.Body)
				}
				for name, values := range c.header {
					if slices.Contains(c.lost, name) && !(accepts == "gzip" && strings.HasPrefix(c.body, "\x1f\x8b")) {
						values = nil
					}
					if got := w.Header()[name]; !slices.Equal(got, values) {
						t.Errorf("%s is %q, want %q", name, got, values)
					}
				}
			}
		})
	}
}

func TestWhoTakesGzip(t *testing.T) {
	g := newGuard(t, newEngine(t, nil), nil)
	h := g.Handler(semelhttp.Route{Operation: semel.Operation{Name: "pay"}}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		zw := gzip.NewWriter(w)
		_, _ = io.WriteString(zw, "packed")
		_ = zw.Close()
	}))
	call(h, secretKey, "{}", nil)
	for accepts, want := range map[string]bool{
		"": false, "gzip": true, "x-gzip": true, "GZIP;q=0.1": true, "*": true, "br, *;q=0.5": true, "*;q=0": false, "identity": false,
		"gzip;q=0, *": false, "*, gzip; q=0": false, "*;q=0, gzip": true, "gzip;q=0": false, "br": false,
	} {
		w := call(h, secretKey, "{}", func(r *http.Request) { r.Header.Set("Accept-Encoding", accepts) })
		if packed := w.Header().Get("Content-Encoding") == "gzip"; packed != want || packed == (w.Body.String() == "packed") {
			t.Errorf("who accepts %q got %v %q", accepts, w.Header(), w.Body)
		}
	}
}

// A handler that compresses as the first caller asks does so in a way that every later one can
// get. Who compresses outside of the guard sees what its caller accepts.
func TestCodingsThatLaterCallersMayNotTake(t *testing.T) {
	for accepts, want := range map[string]string{
		"br": "identity", "br, gzip, zstd": "gzip", "gzip": "gzip", "gzip, deflate, br": "gzip", "*": "gzip", "gzip;q=0, br": "identity", "identity": "identity",
	} {
		t.Run(accepts, func(t *testing.T) {
			g := newGuard(t, newEngine(t, nil), nil)
			h := g.Handler(semelhttp.Route{Operation: semel.Operation{Name: "pay"}}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				got := r.Header.Get("Accept-Encoding")
				if got != want {
					t.Errorf("the handler is told %q, want %q", got, want)
				}
				if strings.Contains(got, "br") {
					w.Header().Set("Content-Encoding", "br")
				}
				_, _ = io.WriteString(w, "text")
			}))
			outer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				h.ServeHTTP(w, r)
				if got := r.Header.Get("Accept-Encoding"); got != accepts {
					t.Errorf("outside it is %q afterwards", got)
				}
			})
			for _, by := range []string{accepts, "identity"} {
				accepts = by
				w := call(outer, secretKey, "{}", func(r *http.Request) { r.Header.Set("Accept-Encoding", by) })
				if w.Body.String() != "text" || w.Header().Get("Content-Encoding") != "" {
					t.Errorf("who accepts %q got %v %q", by, w.Header(), w.Body)
				}
			}
		})
	}
}
