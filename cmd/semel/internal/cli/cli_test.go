package cli

import (
	"bytes"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
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
		{}, {"version"}, {"key"}, {"key", "derive"}, {"key", "lint"}, {"bench"}, {"bench", "store"}, {"bench", "proxy"}, {"demo"},
		{"serve"}, {"proxy"}, {"healthcheck"}, {"explain"}, {"man"},
		{"evidence"}, {"evidence", "keygen"}, {"evidence", "show"}, {"evidence", "export"}, {"evidence", "prove"}, {"evidence", "verify"},
		{"store"}, {"store", "status"}, {"store", "new-epoch"}, {"migrate"}, {"migrate", "up"},
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
		{"one that resembles nothing is not", []string{"xyzzy"}, "semel: unknown command \"xyzzy\" for \"semel\"\nRun 'semel --help' for usage.\n"},
		{"a wrong flag is answered with a near one", []string{"version", "--jsno"}, "semel: unknown flag: --jsno, did you mean --json?\nRun 'semel version --help' for usage.\n"},
		{"an argument where none belongs is refused", []string{"version", "now"}, "semel: unexpected argument \"now\" for \"semel version\"\nRun 'semel version --help' for usage.\n"},
		{"a value that is no number is refused", []string{"bench", "store", "--callers", "many"}, "semel: invalid argument \"many\" for \"--callers\" flag: strconv.ParseInt: parsing \"many\": invalid syntax\nRun 'semel bench store --help' for usage.\n"},
		{"an unknown store is refused", []string{"bench", "store", "--store", "tape:"}, "semel: --store is \"tape:\", not pebble:DIR, a postgres, redis or redis-cluster URL, or memory:\nRun 'semel bench store --help' for usage.\n"},
		{"the URL to compare with may follow its flag", []string{"bench", "store", "--store", "redis://127.0.0.1", "--compare", "redis://127.0.0.1"},
			"semel: --compare with a URL needs --store pebble:DIR\nRun 'semel bench store --help' for usage.\n"},
		{"or be joined to it", []string{"bench", "store", "--store", "pebble:dir", "--compare=postgres://127.0.0.1"},
			"semel: --compare takes the URL of a Redis\nRun 'semel bench store --help' for usage.\n"},
		{"another argument is refused", []string{"bench", "store", "--store", "memory:", "--compare", "fast"},
			"semel: unexpected argument \"fast\" for \"semel bench store\"\nRun 'semel bench store --help' for usage.\n"},
		{"all that is wrong with a benchmark is said at once", []string{"bench", "store", "--store", "memory:", "--compare", "--callers", "0"},
			"semel: --callers is 0, not 1 to 100000\n--compare needs another --store than memory: there is nothing bare to compare that with\nRun 'semel bench store --help' for usage.\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			code, out, errs := semelWith(t, "", test.args...)
			if code != ExitUsage || out != "" || errs != test.want {
				t.Errorf("exit %d, stdout %q, stderr %q; want %d and %q", code, out, errs, ExitUsage, test.want)
			}
		})
	}
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
		if !regexp.MustCompile(`^semel \S+( \([0-9a-f]{12}(, modified)?\))? go\S+ \S+/\S+\n$`).MatchString(out) || code != ExitOK {
			t.Errorf("exit %d, %q", code, out)
		}
	})
	t.Run("its JSON has the documented fields", func(t *testing.T) {
		code, out, _ := semelWith(t, "", "version", "--json")
		wantFields(t, out, "version", "commit", "time", "modified", "go", "os", "arch")
		if code != ExitOK || !strings.Contains(out, `"os": "`+runtime.GOOS+`"`) {
			t.Errorf("exit %d, %s", code, out)
		}
	})
	t.Run("it tells what was built", func(t *testing.T) {
		info := &debug.BuildInfo{GoVersion: "go1.26.8", Main: debug.Module{Version: "v1.2.3"}, Settings: []debug.BuildSetting{
			{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.time", Value: "2026-01-02T03:04:05Z"}, {Key: "vcs.modified", Value: "true"},
		}}
		want := versionInfo{Version: "v1.2.3", Commit: "0123456789abcdef", Time: "2026-01-02T03:04:05Z", Modified: true, Go: "go1.26.8", OS: runtime.GOOS, Arch: runtime.GOARCH}
		if got := buildVersion(info, true); got != want {
			t.Errorf("version = %+v", got)
		}
	})
}

func TestBenchStore(t *testing.T) {
	small := []string{"--callers", "4", "--duration", "40ms", "--result-bytes", "50"}
	t.Run("the JSON of a comparison has the documented fields", func(t *testing.T) {
		dir := t.TempDir()
		args := append([]string{"bench", "store", "--store", "pebble:" + dir, "--compare", "--rounds", "2", "--records", "100", "--json"}, small...)
		code, out, errs := semelWith(t, "", args...)
		if code != ExitOK {
			t.Fatalf("exit %d, %s", code, errs)
		}
		wantFields(t, out, "store", "load", "callers", "nodes", "result_bytes", "cpus", "go", "resident_bytes", "peak_resident_bytes", "durability",
			"compared_with", "ours", "bare", "ratio", "ratio_of_totals", "rounds", "claim_bytes", "outcome_bytes", "filled", "small", "scale_ratio", "replay_scale_ratio")
		var r struct {
			Ours, Bare, Filled json.RawMessage
			Rounds             []json.RawMessage
		}
		if err := json.Unmarshal([]byte(out), &r); err != nil {
			t.Fatal(err)
		}
		for _, m := range []json.RawMessage{r.Ours, r.Bare} {
			wantFields(t, string(m), "operations", "seconds", "ops_per_second", "latency", "allocs_per_op", "bytes_per_op", "errors")
		}
		wantFields(t, string(r.Filled), "records", "fill_seconds", "replay", "execute", "resident_bytes", "peak_resident_bytes")
		wantFields(t, string(r.Rounds[0]), "ours", "bare", "ratio")
		if !strings.Contains(errs, "round 2 of 2") || !strings.Contains(errs, "filling a store with 100 records") {
			t.Errorf("the progress on standard error is %q", errs)
		}
	})
	t.Run("without JSON it is a table", func(t *testing.T) {
		code, out, errs := semelWith(t, "", append([]string{"bench", "store", "--store", "memory:", "--load", "mixed"}, small...)...)
		if code != ExitOK || !regexp.MustCompile(`(?m)^memory store, 4 callers, 50 byte results`).MatchString(out) || !regexp.MustCompile(`(?m)^mixed +\d+ .* 0$`).MatchString(out) {
			t.Errorf("exit %d, %s%s", code, out, errs)
		}
	})
	t.Run("a directory with foreign files is refused", func(t *testing.T) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "mine"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		code, out, errs := semelWith(t, "", append([]string{"bench", "store", "--store", "pebble:" + dir, "--json"}, small...)...)
		if code != ExitCheck || out != "" || !strings.Contains(errs, "holds mine") {
			t.Errorf("exit %d, %s%s", code, out, errs)
		}
	})
}
