// Package contexts keeps the services that a person works with, by names that they chose, in
// a file of theirs.
package contexts

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/semelhq/semel/internal/canon"
	"github.com/semelhq/semel/internal/form"
	"github.com/semelhq/semel/internal/replace"
)

// Context says where a service is, and which token opens it.
type Context struct {
	// URL is the address of its admin listener.
	URL string `json:"url"`
	// TokenFile is the absolute path of a file with the token; empty: none. The token itself isn't
	// here.
	TokenFile string `json:"token_file,omitempty"`
}

// List is the content of the file.
type List struct {
	// Current is the context that commands use by default; empty: none.
	Current  string             `json:"current,omitempty"`
	Contexts map[string]Context `json:"contexts"`
}

// maxFile bounds the file, in bytes.
const maxFile = 1 << 20

// File returns the file of this user's contexts: semel/contexts.json in the directory of
// [os.UserConfigDir].
func File() (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("there is no place for contexts: %w", err)
	}
	return filepath.Join(dir, "semel", "contexts.json"), nil
}

// Load reads a file. A missing file is an empty list.
func Load(file string) (*List, error) {
	l := &List{Contexts: map[string]Context{}}
	info, err := os.Stat(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return l, nil
	case err != nil:
		return nil, err
	case info.Mode().Perm()&0o022 != 0 && runtime.GOOS != "windows":
		return nil, fmt.Errorf("others can write %s, and so choose who gets your token: look at it, and run chmod go-w %s", file, file)
	case info.Size() > maxFile:
		return nil, fmt.Errorf("%s has %d bytes, and at most %d are read", file, info.Size(), maxFile)
	}
	text, err := os.ReadFile(file)
	if err == nil {
		err = canon.Check(text, canon.Exact)
	}
	if err == nil {
		err = form.Read(text, 1, l)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	for name, c := range l.Contexts {
		if err := check(name, c); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	if _, ok := l.Contexts[l.Current]; l.Current != "" && !ok {
		return nil, fmt.Errorf("%s: the current context %q isn't in it", file, l.Current)
	}
	if l.Contexts == nil {
		l.Contexts = map[string]Context{}
	}
	return l, nil
}

// Save writes a file that only its owner can read.
func (l *List) Save(file string) error {
	text, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	// A crash before leaves the old file, a crash after the new one.
	return replace.File(file, append(text, '\n'), 0o600)
}

// Add adds or replaces a context. The first one becomes the current one.
func (l *List) Add(name string, c Context) error {
	if err := check(name, c); err != nil {
		return err
	}
	if len(l.Contexts) == 0 {
		l.Current = name
	}
	l.Contexts[name] = c
	return nil
}

func check(name string, c Context) error {
	u, err := url.Parse(c.URL)
	switch {
	case name == "" || len(name) > 64 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") != "":
		return fmt.Errorf("the name of a context is up to 64 letters, digits and -_., not %q", name)
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return fmt.Errorf("the URL of the context %s isn't one that begins with http:// or https://", name)
	case u.User != nil:
		return fmt.Errorf("the URL of the context %s has a password: put a token into a file", name)
	case c.TokenFile != "" && !filepath.IsAbs(c.TokenFile):
		return fmt.Errorf("the token file of the context %s isn't an absolute path", name)
	}
	return nil
}
