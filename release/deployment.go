package main

import (
	"io"
	"os"
	"path/filepath"
)

// deployment writes the chart for Helm, as helm package does but with the times of the commit,
// and the file for Compose.
func (r *release) deployment([]binary) error {
	packaging := filepath.Join(r.root, "release", "packaging")
	entries, err := entriesBelow(filepath.Join(packaging, "chart"))
	if err != nil {
		return err
	}
	for i := range entries {
		entries[i].name = "semel/" + entries[i].name
	}
	if err := r.create("semel-"+r.version+".tgz", func(w io.Writer) error { return r.tarball(w, entries) }); err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(packaging, "compose.yaml"))
	if err != nil {
		return err
	}
	return r.create("compose.yaml", func(w io.Writer) error { _, err := w.Write(text); return err })
}
