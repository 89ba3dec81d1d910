package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// environment is that of the corpus.
func environment(name string) (string, bool) {
	value, ok := map[string]string{"PORT": "8490", "FINANCIAL": "true"}[name]
	return value, ok
}

// corpus lists the files of a part of the corpus.
func corpus(t *testing.T, part string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", part, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// loadCorpus loads a file under its base name, so that errors look the same
// everywhere.
func loadCorpus(t *testing.T, file string) (*Config, *Origins, error) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return Load(Source{Path: filepath.Base(file), Data: data, Env: environment})
}

// golden compares text with a file.
func golden(t *testing.T, file, text string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if text != string(want) {
		t.Errorf("got:\n%s\nwant, as in %s:\n%s", text, file, want)
	}
}

func TestMistakes(t *testing.T) {
	files := corpus(t, "bad")
	if len(files) < 25 {
		t.Fatalf("the corpus has %d files", len(files))
	}
	most := 0
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml")+" gives the errors recorded", func(t *testing.T) {
			c, _, err := loadCorpus(t, file)
			errs, ok := errors.AsType[Errors](err)
			if !ok || c != nil {
				t.Fatalf("the error is %T %v, and a configuration comes with it: %v", err, err, c != nil)
			}
			golden(t, strings.TrimSuffix(file, ".yaml")+".errors", errs.Error()+"\n")
			most = max(most, len(errs))
			for _, e := range errs {
				if e.Line < 1 || e.Column < 1 || e.File != filepath.Base(file) {
					t.Errorf("%s has no place: %+v", e.Message, e)
				}
			}
			if !slices.IsSortedFunc(errs, func(a, b *Error) int {
				return slices.Compare([]int{a.Line, a.Column}, []int{b.Line, b.Column})
			}) {
				t.Error("the errors are not in the order of the file")
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Error("a password is shown")
			}
			again, err := json.Marshal(errs)
			if err != nil || !bytes.Contains(again, []byte(`"line":`)) {
				t.Errorf("as JSON: %s, %v", again, err)
			}
		})
	}
	t.Run("one file has at least eight mistakes and all are reported", func(t *testing.T) {
		if most < 8 {
			t.Errorf("the most errors of one file are %d", most)
		}
	})
}

func TestGoodFiles(t *testing.T) {
	for _, file := range corpus(t, "good") {
		t.Run(filepath.Base(file)+" loads as recorded, and so does what is printed", func(t *testing.T) {
			c, _, err := loadCorpus(t, file)
			if err != nil {
				t.Fatal(err)
			}
			var first bytes.Buffer
			if err := Print(&first, c); err != nil {
				t.Fatal(err)
			}
			golden(t, strings.TrimSuffix(file, ".yaml")+".printed", first.String())
			text := first.String() // but digests are cut short
			for _, token := range c.Auth.Tokens {
				text = strings.Replace(text, token.SHA256[:8]+"...", token.SHA256, 1)
			}
			again, _, err := Load(Source{Path: "printed.yaml", Data: []byte(text)})
			if err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			if paths := Diff(c, again); len(paths) > 0 {
				t.Errorf("%q differ", paths)
			}
		})
	}
}

func FuzzLoad(f *testing.F) {
	for _, part := range []string{"good", "bad"} {
		files, err := filepath.Glob(filepath.Join("testdata", part, "*.yaml"))
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data)
		}
	}
	for _, text := range []string{"", "a: *a", "? {a: b}\n: c", "[[[[", "- - - -", "\"\\x", "a:\n  - b\n c: d", "%YAML 9\n---", "\xff\xfe", "<<: [*a]", "listen: &a {tls: *a}"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if bytes.Contains(data, []byte("_file")) {
			return // would read files of this machine
		}
		c, origins, err := Load(Source{Path: "fuzz.yaml", Data: data, Env: environment})
		if err != nil {
			errs, ok := errors.AsType[Errors](err)
			if !ok || len(errs) == 0 {
				t.Fatalf("the error is %T: %v", err, err)
			}
			for _, e := range errs {
				if e.Line < 1 || e.Column < 1 {
					t.Errorf("%q has no place", e.Message)
				}
			}
			_ = errs.Error()
			return
		}
		if len(Diff(c, c)) > 0 {
			t.Error("the configuration differs from itself")
		}
		if _, err := Settings(c, origins, ""); err != nil {
			t.Error(err)
		}
	})
}
