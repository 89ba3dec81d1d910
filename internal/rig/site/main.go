// Command site writes the documentation as a site of files, into a directory.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/semelhq/semel/internal/docs"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "site: name the description of the API and a directory")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "site:", err)
		os.Exit(1)
	}
}

// write writes all files of the site, and the description of the API beside them.
func write(api, dir string) error {
	description, err := os.ReadFile(api)
	if err != nil {
		return err
	}
	form := docs.Form{Site: true, API: "openapi.json"}
	files := map[string][]byte{form.API: description}
	for _, name := range docs.Ours().Names(form) {
		files[name], _ = docs.Ours().File(form, name, "")
	}
	for name, text := range files {
		at := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(at, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
