package cli

import (
	"bytes"
	"log"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Nothing prints a password or a token, in whatever form it was written.
func TestNothingPrintsSecrets(t *testing.T) {
	const secret = "hunter2"
	commands := [][]string{
		{"config", "validate"}, {"config", "print"}, {"config", "print", "--json"}, {"config", "explain"}, {"config", "explain", "--json"},
		{"store", "status"}, {"serve", "--listen", "127.0.0.1:1"}, {"migrate", "status"}, {"records", "list"},
	}
	from := func(command []string, file string) []string { return append(slices.Clone(command), "--config", file) }
	for _, url := range []string{
		"u:hunter2@h", "hunter2", "hunter2 x", "memory:hunter2", "hunter2:", "postgres:u:hunter2@h/db", "postgres://u:hunter2 x@h/db", "postgres://u:hunter2@h:port/db",
		"postgres://u:hunter2@/db", "postgres//u:hunter2@h/db", "redis://:hunter2@h:1/x y", "mysql://u:hunter2@h/db", "postgres://u:%zzhunter2@h/db", "://hunter2",
	} {
		for form, text := range map[string]string{
			"block":  "store:\n  url: '" + url + "'\n  colour: red\n",
			"flow":   "store: {url: \"" + url + "\", profile: standard}\n",
			"schema": "store: {url: \"" + url + "\", profile: nowhere}\n",
		} {
			file := filepath.Join(t.TempDir(), "semel.yaml")
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			for _, c := range commands {
				if _, out, errs := semelWith(t, "", from(c, file)...); strings.Contains(out+errs, secret) {
					t.Errorf("%q, %s: semel %s prints it:\n%s%s", url, form, strings.Join(c, " "), out, errs)
				}
			}
		}
	}
	t.Run("the token of a reconciler", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "semel.yaml")
		text := "operations: [{name: default, reconcile_url: \"http://127.0.0.1:9/state?token=" + secret + "\"}]\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, c := range commands[:5] {
			if code, out, errs := semelWith(t, "", from(c, file)...); code != ExitOK || strings.Contains(out+errs, secret) {
				t.Errorf("semel %s: exit %d:\n%s%s", strings.Join(c, " "), code, out, errs)
			}
		}
	})
}

// net/http writes to the standard logger what an upstream sent that nobody asked for.
func TestLibrariesLogNothingOfAnswers(t *testing.T) {
	flags, to := log.Flags(), log.Writer()
	defer func() {
		log.SetFlags(flags)
		log.SetOutput(to)
	}()
	var text bytes.Buffer
	quietLibraries(slog.New(slog.NewJSONHandler(&text, nil)))
	log.Printf("Unsolicited response received on idle HTTP channel starting with %q; err=%v", "HTTP/1.1 200 OK\r\n\r\npoison", nil)
	if got := text.String(); strings.Contains(got, "poison") || !strings.Contains(got, `"text":"Unsolicited response received on idle HTTP channel starting with"`) {
		t.Error(got)
	}
}
