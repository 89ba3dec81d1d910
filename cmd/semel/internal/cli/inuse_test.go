package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// Only what nobody else can have written says where a token goes, and it stays on this machine.
func TestNotedAddressesAreOurs(t *testing.T) {
	for name, test := range map[string]struct {
		url        string
		file, dir  os.FileMode
		want, link bool
	}{
		"a file of ours":                          {url: "http://127.0.0.1:1", file: 0o600, dir: 0o700, want: true},
		"one that others can read":                {url: "http://[::1]:1", file: 0o644, dir: 0o755, want: true},
		"one that others can write":               {url: "http://127.0.0.1:1", file: 0o666, dir: 0o700},
		"in a directory that others can write":    {url: "http://127.0.0.1:1", file: 0o600, dir: 0o777},
		"a link":                                  {url: "http://127.0.0.1:1", file: 0o600, dir: 0o700, link: true},
		"an address of another machine":           {url: "http://192.0.2.1:1", file: 0o600, dir: 0o700},
		"a name, of whoever has it at the moment": {url: "http://evil.example:1", file: 0o600, dir: 0o700},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, addressFile)
			at := file
			if test.link {
				at += "-elsewhere"
				if err := os.Symlink(at, file); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(at, fmt.Appendf(nil, "%s %d\n", test.url, os.Getpid()), 0o600); err != nil {
				t.Fatal(err)
			}
			for path, mode := range map[string]os.FileMode{at: test.file, dir: test.dir} {
				if err := os.Chmod(path, mode); err != nil {
					t.Fatal(err)
				}
			}
			if url, alive := noted(dir); alive != test.want || (url != "") != test.want {
				t.Errorf("%q, %v", url, alive)
			}
		})
	}
}

func TestPasswordsOfStoresAreNotShown(t *testing.T) {
	for url, want := range map[string]string{
		"pebble:./data": "pebble:./data",
		"postgres://semel@db/semel?sslmode=disable": "postgres://semel@db/semel?sslmode=disable",
		"postgres://semel:secret@db/semel":          "postgres://semel:xxxxx@db/semel",
		"redis://:secret@cache":                     "redis://:xxxxx@cache",
		"postgres://db/semel?password=secret":       "postgres://db/semel?...",
	} {
		if got := withoutPassword(url); got != want {
			t.Errorf("%s is shown as %s, want %s", url, got, want)
		}
	}
}
