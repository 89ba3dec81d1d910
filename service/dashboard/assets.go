package dashboard

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/internal/problem"
	"github.com/semelhq/semel/store"
)

// files are the page as it is served: nothing is built or generated.
//
//go:embed web/index.html web/icon.svg web/css web/js web/vendor
var files embed.FS

// policy lets the page load its own modules and styles, talk to this server, and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; " +
	"base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

var mediaTypes = map[string]string{
	".html": "text/html; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".svg":  "image/svg+xml",
}

// assets registers the files. What isn't a part of the page isn't served: licenses and
// sums are for who reads the source.
//
// The page asks for its files below a path with the digest of all of them, where each may be
// kept for good: so a second visit asks for the page alone, and a new version of the program
// never runs with modules of the old one. Without the digest they are there, too, and a
// browser asks each time whether they're still the same.
func assets(mux *http.ServeMux) {
	all := map[string][]byte{}
	sum := sha256.New()
	err := fs.WalkDir(files, "web", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || mediaTypes[path.Ext(name)] == "" {
			return err
		}
		data, err := files.ReadFile(name)
		all[name] = data
		_, _ = fmt.Fprintf(sum, "%s %d\n%s", name, len(data), data) // in the order of their names
		return err
	})
	if err != nil {
		panic(err) // the files are part of the program
	}
	version := hex.EncodeToString(sum.Sum(nil)[:8])
	for name, data := range all {
		at := strings.TrimPrefix(name, "web/")
		if at == "index.html" {
			data = bytes.ReplaceAll(data, []byte(`"ui/`), []byte(`"ui/`+version+`/`))
			mux.Handle("GET /{$}", newAsset(".html", data))
			continue
		}
		file := newAsset(path.Ext(name), data)
		mux.Handle("GET /ui/"+at, file)
		file.cache = "max-age=31536000, immutable"
		mux.Handle("GET /ui/"+version+"/"+at, file)
	}
}

type asset struct {
	media, cache string
	plain, gzip  form
}

type form struct {
	tag  string
	data func() []byte
}

func newAsset(extension string, data []byte) asset {
	sum := sha256.Sum256(data)
	tag := hex.EncodeToString(sum[:16])
	return asset{
		media: mediaTypes[extension], cache: "no-cache",
		plain: form{tag, func() []byte { return data }},
		gzip:  form{tag + "-gzip", sync.OnceValue(func() []byte { return compressed(data) })}, // a service starts without it
	}
}

func compressed(data []byte) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write(data) // into memory
	_ = z.Close()
	return b.Bytes()
}

func (a asset) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h, send := w.Header(), a.plain
	h.Set("Content-Type", a.media)
	h.Set("Content-Security-Policy", policy)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cache-Control", a.cache)
	h.Set("Vary", "Accept-Encoding")
	if slices.ContainsFunc(strings.Split(r.Header.Get("Accept-Encoding"), ","), func(coding string) bool { return strings.TrimSpace(coding) == "gzip" }) {
		send = a.gzip
		h.Set("Content-Encoding", "gzip")
	}
	h.Set("ETag", `"`+send.tag+`"`)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(send.data()))
}

func reply(w http.ResponseWriter, doc any) {
	problem.WriteAs(w, http.StatusOK, "application/json", doc)
}

type refusal struct {
	Title  string       `json:"title"`
	Status int          `json:"status"`
	Detail string       `json:"detail"`
	Code   semel.Code   `json:"code"`
	Action store.Action `json:"action"`
}

// refuse answers with what a code means at every door, and a sentence for people.
func refuse(w http.ResponseWriter, code semel.Code, detail string) {
	m, _ := door.Lookup(code)
	if code == door.CodeUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="semel"`)
	}
	problem.Write(w, m.Status, refusal{m.Title, m.Status, detail, code, m.Do})
}
