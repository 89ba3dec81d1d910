package dashboard

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"time"
)

// files are the page as it is served: nothing is built or generated.
//
//go:embed web/index.html web/icon.svg web/css web/js web/vendor
var files embed.FS

// policy lets the page load its own modules and styles and talk to this server, and nothing
// else: no inline script, no other host, no frame around it.
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
func assets(mux *http.ServeMux) {
	err := fs.WalkDir(files, "web", func(name string, entry fs.DirEntry, err error) error {
		media, served := mediaTypes[path.Ext(name)]
		if err != nil || entry.IsDir() || !served {
			return err
		}
		data, err := files.ReadFile(name)
		if err != nil {
			return err
		}
		at := "/ui/" + strings.TrimPrefix(name, "web/")
		if name == "web/index.html" {
			at = "/{$}"
		}
		mux.Handle("GET "+at, asset(media, data))
		return nil
	})
	if err != nil {
		panic(err) // the files are part of the program
	}
}

// asset serves one file. A browser keeps it and asks whether it's still the same, so that
// a new version of the program never runs with modules of the old one.
func asset(media string, data []byte) http.Handler {
	sum := sha256.Sum256(data)
	tag := `"` + hex.EncodeToString(sum[:16]) + `"`
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Type", media)
		h.Set("Content-Security-Policy", policy)
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cache-Control", "no-cache")
		h.Set("ETag", tag)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
	})
}
