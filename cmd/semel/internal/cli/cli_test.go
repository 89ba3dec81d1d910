package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store/pebblestore"
)

var update = flag.Bool("update", false, "write the golden files anew")

// semelWith runs a command line with a standard input.
func semelWith(t *testing.T, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = Run(t.Context(), args, strings.NewReader(stdin), &out, &errs)
	return code, out.String(), errs.String()
}

// golden compares text with a file in testdata.
func golden(t *testing.T, name, text string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if text != string(want) {
		t.Errorf("%s differs; go test -update writes it anew. Got:\n%s", file, text)
	}
}

// fields are the names of the members of a JSON object, sorted.
func fields(t *testing.T, text string) []string {
	t.Helper()
	var object map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &object); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return slices.Sorted(maps.Keys(object))
}

func wantFields(t *testing.T, text string, want ...string) {
	t.Helper()
	slices.Sort(want)
	if got := fields(t, text); !slices.Equal(got, want) {
		t.Errorf("fields = %q, want %q", got, want)
	}
}

func TestHelp(t *testing.T) {
	for _, args := range [][]string{
		{}, {"version"}, {"key"}, {"key", "derive"}, {"key", "lint"}, {"demo"},
		{"serve"}, {"proxy"}, {"mcp"}, {"mcp", "wrap"}, {"healthcheck"}, {"explain"}, {"docs"}, {"why"}, {"top"}, {"tail"}, {"doctor"}, {"man"},
		{"evidence"}, {"evidence", "keygen"}, {"evidence", "show"}, {"evidence", "export"}, {"evidence", "prove"}, {"evidence", "verify"},
		{"store"}, {"store", "status"}, {"store", "new-epoch"}, {"archive"}, {"archive", "verify"}, {"archive", "read"}, {"migrate"}, {"migrate", "up"}, {"reconcile"}, {"reconcile", "payments"}, {"ids", "list"}, {"check"}, {"check", "http"}, {"openapi"}, {"openapi", "annotate"}, {"config", "from-openapi"}, {"check", "ids"}, {"check", "forrst"}, {"check", "webhook"}, {"check", "activitypub"}, {"check", "a2a"},
	} {
		name := strings.Join(append([]string{"semel"}, args...), "-")
		t.Run("the help of "+name+" is as recorded", func(t *testing.T) {
			code, out, errs := semelWith(t, "", append(slices.Clone(args), "--help")...)
			if code != ExitOK || errs != "" {
				t.Fatalf("exit %d, %s", code, errs)
			}
			golden(t, "help/"+name+".txt", out)
			for line := range strings.Lines(out) {
				if len(line) > 100 {
					t.Errorf("a line has %d bytes: %s", len(line), line)
				}
			}
		})
	}
}

func TestUsage(t *testing.T) {
	for _, test := range []struct {
		name string
		args []string
		want string
	}{
		{"a wrong command is answered with a near one", []string{"dmeo"}, "semel: unknown command \"dmeo\" for \"semel\", did you mean demo?\nRun 'semel --help' for usage.\n"},
		{"so is a wrong subcommand", []string{"key", "lnt"}, "semel: unknown command \"lnt\" for \"semel key\", did you mean lint?\nRun 'semel key --help' for usage.\n"},
		{"one that resembles nothing is answered with all", []string{"key", "xyzzy"}, "semel: unknown command \"xyzzy\" for \"semel key\"; there are derive, lint\nRun 'semel key --help' for usage.\n"},
		{"a wrong flag is answered with a near one", []string{"version", "--jsno"}, "semel: unknown flag: --jsno, did you mean --json?\nRun 'semel version --help' for usage.\n"},
		{"help on a wrong command is answered like the command", []string{"help", "dmeo"}, "semel: unknown command \"dmeo\" for \"semel\", did you mean demo?\nRun 'semel --help' for usage.\n"},
		{"so is help on a wrong subcommand", []string{"help", "key", "xyzzy"}, "semel: unknown command \"xyzzy\" for \"semel key\"; there are derive, lint\nRun 'semel key --help' for usage.\n"},
		{"so is a wrong command with --help", []string{"key", "lnt", "--help"}, "semel: unknown command \"lnt\" for \"semel key\", did you mean lint?\nRun 'semel key --help' for usage.\n"},
		{"what others have and Semel hasn't is answered with the reason", []string{"migrate", "down", "--store", "postgres://x"}, "semel: there are no migrations downwards: they would have to throw away data that an earlier program can't hold. Restore the backup from before the migration\nRun 'semel migrate --help' for usage.\n"},
		{"a wrong subcommand counts before its flags", []string{"migrate", "satus", "--store", "postgres://x"}, "semel: unknown command \"satus\" for \"semel migrate\", did you mean status?\nRun 'semel migrate --help' for usage.\n"},
		{"the clock of a store that lasts isn't moved", []string{"serve", "--store", "pebble:none", "--test-clock"}, "semel: --test-clock needs --store memory: because it moves the clock of a store in memory only, and the store is pebble:none\nRun 'semel serve --help' for usage.\n"},
		{"an argument where none belongs is refused", []string{"version", "now"}, "semel: unexpected argument \"now\": write semel version [flags]\nRun 'semel version --help' for usage.\n"},
		{"a value that is no number is refused", []string{"records", "list", "--limit", "many"}, "semel: --limit: \"many\" is not a whole number\nRun 'semel records list --help' for usage.\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			code, out, errs := semelWith(t, "", test.args...)
			if code != ExitUsage || out != "" || errs != test.want {
				t.Errorf("exit %d, stdout %q, stderr %q; want %d and %q", code, out, errs, ExitUsage, test.want)
			}
		})
	}
	t.Run("help shows the help of a command", func(t *testing.T) {
		for args, want := range map[string]string{"help": "semel [command]", "help key": "semel key [command]", "help key lint": "semel key lint ", "help help": "semel help [command]", "records get nosuch --help": "semel records get "} {
			if code, out, errs := semelWith(t, "", strings.Fields(args)...); code != ExitOK || !strings.Contains(out, want) {
				t.Errorf("%s: exit %d, %s%s", args, code, out, errs)
			}
		}
	})
	t.Run("no command at all shows the help", func(t *testing.T) {
		code, out, _ := semelWith(t, "")
		if code != ExitOK || !strings.Contains(out, "Usage:") {
			t.Errorf("exit %d, %s", code, out)
		}
	})
}

func TestVersion(t *testing.T) {
	t.Run("it is one line", func(t *testing.T) {
		code, out, _ := semelWith(t, "", "version")
		if _, flag, _ := semelWith(t, "", "--version"); !strings.HasPrefix(out, flag) {
			t.Errorf("--version prints %q", flag)
		}
		if !regexp.MustCompile(`^semel \S+( \([0-9a-f]{12}(, modified)?(, \S+Z)?\))? go\S+ \S+/\S+\nstored forms: archive:\d+ embedded:\d+ evidence:\d+ postgresql:\d+ records:\d+ redis:\d+\n$`).MatchString(out) || code != ExitOK {
			t.Errorf("exit %d, %q", code, out)
		}
	})
	t.Run("its JSON has the documented fields", func(t *testing.T) {
		code, out, _ := semelWith(t, "", "version", "--json")
		wantFields(t, out, "version", "commit", "time", "modified", "go", "os", "arch", "formats")
		if code != ExitOK || !strings.Contains(out, `"os": "`+runtime.GOOS+`"`) {
			t.Errorf("exit %d, %s", code, out)
		}
	})
	t.Run("it tells what was built", func(t *testing.T) {
		info := &debug.BuildInfo{GoVersion: "go1.26.8", Main: debug.Module{Version: "v1.2.3"}, Settings: []debug.BuildSetting{
			{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.time", Value: "2026-01-02T03:04:05Z"}, {Key: "vcs.modified", Value: "true"},
		}}
		want := versionInfo{Version: "v1.2.3", Commit: "0123456789abcdef", Time: "2026-01-02T03:04:05Z", Modified: true, Go: "go1.26.8", OS: runtime.GOOS, Arch: runtime.GOARCH, Formats: formats}
		if got := buildVersion(info, true); !reflect.DeepEqual(got, want) {
			t.Errorf("version = %+v", got)
		}
		if line := want.line(); !strings.HasPrefix(line, "semel v1.2.3 (0123456789ab, modified, 2026-01-02T03:04:05Z) go1.26.8 ") {
			t.Error(line)
		}
	})
	t.Run("a build without a commit is told by its digest", func(t *testing.T) {
		if v := thisBuild(); v.Commit == "" && !regexp.MustCompile(`^\(devel\)-[0-9a-f]{12}$`).MatchString(v.Version) {
			t.Errorf("version = %+v", v)
		}
	})
}

// newStore makes an embedded store for commands, with an engine on it. leave closes both: no command
// opens the store before.
func newStore(t *testing.T, opts *semel.Options) (dir string, engine *semel.Engine, leave func()) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "store")
	st, err := pebblestore.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if engine, err = semel.New(st, opts); err != nil {
		t.Fatal(err)
	}
	return dir, engine, func() {
		t.Helper()
		if err := errors.Join(engine.Close(t.Context()), st.Close()); err != nil {
			t.Fatal(err)
		}
	}
}
