package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files anew")

// bench runs a command line.
func bench(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), args, strings.NewReader(""), &out, &errs)
	return code, out.String(), errs.String()
}

func wantFields(t *testing.T, text string, want ...string) {
	t.Helper()
	var object map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &object); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	slices.Sort(want)
	if got := slices.Sorted(maps.Keys(object)); !slices.Equal(got, want) {
		t.Errorf("fields = %q, want %q", got, want)
	}
}

func TestHelp(t *testing.T) {
	for _, args := range [][]string{{}, {"store"}, {"proxy"}, {"inbox"}} {
		name := strings.Join(append([]string{"help"}, args...), "-")
		t.Run("the "+name+" is as recorded", func(t *testing.T) {
			code, out, errs := bench(t, append(args, "--help")...)
			if code != exitOK || errs != "" {
				t.Fatalf("exit %d, %s", code, errs)
			}
			file := filepath.Join("testdata", name+".txt")
			if *update {
				if err := os.WriteFile(file, []byte(out), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if out != string(want) {
				t.Errorf("%s differs; go test -update writes it anew. Got:\n%s", file, out)
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
		{"a wrong command is refused", []string{"walk"}, "bench: unexpected argument \"walk\" for \"go run ./bench\"\nRun 'go run ./bench --help' for usage.\n"},
		{"a wrong flag is refused", []string{"proxy", "--jsno"}, "bench: unknown flag: --jsno\nRun 'go run ./bench proxy --help' for usage.\n"},
		{"a value that is no number is refused", []string{"store", "--callers", "many"}, "bench: invalid argument \"many\" for \"--callers\" flag: strconv.ParseInt: parsing \"many\": invalid syntax\nRun 'go run ./bench store --help' for usage.\n"},
		{"an unknown store is refused", []string{"store", "--store", "tape:"}, "bench: --store is \"tape:\", not pebble:DIR, a postgres, redis or redis-cluster URL, or memory:\nRun 'go run ./bench store --help' for usage.\n"},
		{"the URL to compare with may follow its flag", []string{"store", "--store", "redis://127.0.0.1", "--compare", "redis://127.0.0.1"},
			"bench: --compare with a URL needs --store pebble:DIR\nRun 'go run ./bench store --help' for usage.\n"},
		{"or be joined to it", []string{"store", "--store", "pebble:dir", "--compare=postgres://127.0.0.1"},
			"bench: --compare takes the URL of a Redis\nRun 'go run ./bench store --help' for usage.\n"},
		{"another argument is refused", []string{"store", "--store", "memory:", "--compare", "fast"},
			"bench: unexpected argument \"fast\" for \"go run ./bench store\"\nRun 'go run ./bench store --help' for usage.\n"},
		{"all that is wrong with a benchmark is said at once", []string{"store", "--store", "memory:", "--compare", "--callers", "0"},
			"bench: --callers is 0, not 1 to 100000\n--compare needs another --store than memory: there is nothing bare to compare that with\nRun 'go run ./bench store --help' for usage.\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			code, out, errs := bench(t, test.args...)
			if code != exitUsage || out != "" || errs != test.want {
				t.Errorf("exit %d, stdout %q, stderr %q; want %d and %q", code, out, errs, exitUsage, test.want)
			}
		})
	}
}

func TestStore(t *testing.T) {
	small := []string{"--callers", "4", "--duration", "40ms", "--result-bytes", "50"}
	t.Run("the JSON of a comparison has the documented fields", func(t *testing.T) {
		dir := t.TempDir()
		args := append([]string{"store", "--store", "pebble:" + dir, "--compare", "--rounds", "2", "--records", "100", "--json"}, small...)
		code, out, errs := bench(t, args...)
		if code != exitOK {
			t.Fatalf("exit %d, %s", code, errs)
		}
		wantFields(t, out, "store", "callers", "result_bytes", "cpus", "go", "resident_bytes", "peak_resident_bytes", "durability",
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
		code, out, errs := bench(t, append([]string{"store", "--store", "memory:"}, small...)...)
		if code != exitOK || !regexp.MustCompile(`(?m)^memory store, 4 callers, 50 byte results`).MatchString(out) || !regexp.MustCompile(`(?m)^execute +\d+ .* 0$`).MatchString(out) {
			t.Errorf("exit %d, %s%s", code, out, errs)
		}
	})
	t.Run("a directory with foreign files is refused", func(t *testing.T) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "mine"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		code, out, errs := bench(t, append([]string{"store", "--store", "pebble:" + dir, "--json"}, small...)...)
		if code != exitCheck || out != "" || !strings.Contains(errs, "holds mine") {
			t.Errorf("exit %d, %s%s", code, out, errs)
		}
	})
}

func TestInbox(t *testing.T) {
	// A budget that never matters.
	small := []string{"inbox", "--store", "memory:", "--records", "100", "--senders", "4", "--duration", "20ms", "--budget", "1m"}
	// A busy machine may answer too late.
	late := func(code int, errs string) bool { return code == exitCheck && strings.Contains(errs, "above 100ms") }
	t.Run("the JSON has the documented fields", func(t *testing.T) {
		code, out, errs := bench(t, append(small, "--json")...)
		if code != exitOK && !late(code, errs) {
			t.Fatalf("exit %d, %s", code, errs)
		}
		wantFields(t, out, "store", "durability", "records", "senders", "body_bytes", "budget_ms", "cpus", "go", "fill_seconds", "duplicates", "first", "flood")
		var r struct{ Duplicates, Flood json.RawMessage }
		if err := json.Unmarshal([]byte(out), &r); err != nil {
			t.Fatal(err)
		}
		wantFields(t, string(r.Duplicates), "deliveries", "seconds", "deliveries_per_second", "latency", "errors")
		wantFields(t, string(r.Flood), "activities", "copies", "duplicates", "first")
	})
	t.Run("without JSON it is a table", func(t *testing.T) {
		code, out, errs := bench(t, small...)
		if code != exitOK && !late(code, errs) || !regexp.MustCompile(`(?m)^flood, duplicates +\d+ .* 0 none$`).MatchString(out) {
			t.Errorf("exit %d, %s%s", code, out, errs)
		}
	})
	t.Run("what isn't 202 makes it fail", func(t *testing.T) {
		code, out, errs := bench(t, append(small, "--budget", "1ns")...)
		if code != exitCheck || !strings.Contains(out, "503: ") || !strings.Contains(errs, "were not answered with 202") {
			t.Errorf("exit %d, %s%s", code, out, errs)
		}
	})
}
