package contexts

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestContextsAreKept(t *testing.T) {
	file := filepath.Join(t.TempDir(), "semel", "contexts.json")
	l, err := Load(file)
	if err != nil || l.Current != "" || len(l.Contexts) != 0 {
		t.Fatalf("%+v, %v", l, err)
	}
	for name, c := range map[string]Context{"prod": {URL: "https://semel.example:8481", TokenFile: "/etc/semel/token"}} {
		if err := l.Add(name, c); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Add("local", Context{URL: "http://127.0.0.1:8481"}); err != nil || l.Current != "prod" {
		t.Fatalf("%v, the current one is %q", err, l.Current)
	}
	if err := l.Save(file); err != nil {
		t.Fatal(err)
	}
	again, err := Load(file)
	if err != nil || !reflect.DeepEqual(again, l) {
		t.Errorf("%+v, %v", again, err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(file), "contexts-*")); err != nil || len(left) > 0 {
		t.Errorf("%q is left, %v", left, err)
	}
}

func TestWrongContextsAreRefused(t *testing.T) {
	l := &List{Contexts: map[string]Context{}}
	for _, c := range []struct {
		name string
		Context
	}{
		{"", Context{URL: "http://x"}},
		{"a b", Context{URL: "http://x"}},
		{strings.Repeat("a", 65), Context{URL: "http://x"}},
		{"a", Context{}},
		{"a", Context{URL: "x:1"}},
		{"a", Context{URL: "https://user:secret@x"}},
		{"a", Context{URL: "http://x", TokenFile: "token"}},
	} {
		if err := l.Add(c.name, c.Context); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%+v: %v", c, err)
		}
	}
	for _, text := range []string{`{"current":"a","contexts":{}}`, `{"contexts":{"a":{"url":"ftp://x"}}}`, `{"Current":"a"}`, `{"contexts":{},"contexts":{}}`, `{`, strings.Repeat(" ", maxFile+1)} {
		file := filepath.Join(t.TempDir(), "contexts.json")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if l, err := Load(file); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("%.60s: %+v, %v", text, l, err)
		}
	}
}
