package clause

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// failure is what spy panics with where a test would have ended.
type failure string

// spy is a test that notes its end instead of ending the real one.
type spy struct {
	testing.TB
}

func (spy) Helper()                           {}
func (spy) Fatalf(format string, args ...any) { panic(failure(fmt.Sprintf(format, args...))) }

func fatal(f func()) (message string) {
	defer func() {
		if r, ok := recover().(failure); ok {
			message = string(r)
		}
	}()
	f()
	return ""
}

func TestProvesRefusesBadIDs(t *testing.T) {
	for name, ids := range map[string][]string{
		"an unknown id":                {"CORE-INV.99"},
		"an unknown id after good one": {"CORE-INV.1", "core-inv.1"},
		"no id at all":                 nil,
	} {
		t.Run(name, func(t *testing.T) {
			if message := fatal(func() { Proves(spy{t}, ids...) }); message == "" {
				t.Fatal("the test went on")
			}
		})
	}
}

func TestProvesRecordsPassingTests(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(DirEnv, dir)
	t.Run("one parallel test", func(t *testing.T) {
		t.Run("a", func(t *testing.T) { t.Parallel(); Proves(t, "CORE-INV.1", "CORE-INV.2") })
		t.Run("b", func(t *testing.T) { t.Parallel(); Proves(t, "CORE-INV.3") })
	})
	records, err := ReadRecords(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range records {
		if r.Site.File != "internal/rig/clause/proves_test.go" || r.Site.Line == 0 {
			t.Errorf("site = %v, want a line of this file", r.Site)
		}
		got = append(got, r.Clause+" "+r.Package+" "+r.Test)
	}
	slices.Sort(got)
	const pkg = "github.com/semelhq/semel/internal/rig/clause"
	const test = "TestProvesRecordsPassingTests/one_parallel_test/"
	want := []string{
		"CORE-INV.1 " + pkg + " " + test + "a",
		"CORE-INV.2 " + pkg + " " + test + "a",
		"CORE-INV.3 " + pkg + " " + test + "b",
	}
	if !slices.Equal(got, want) {
		t.Errorf("records = %q, want %q", got, want)
	}
}

// TestScenario does nothing on its own. The test below runs it in a child
// process, since only a test that really fails shows that none is recorded.
func TestScenario(t *testing.T) {
	scenario := os.Getenv("SEMEL_CLAUSE_SCENARIO")
	if scenario == "" {
		return
	}
	Proves(t, "CORE-INV.1")
	switch scenario {
	case "passes":
	case "fails":
		t.Error("as asked")
	case "skips":
		t.Skip("as asked")
	case "fails in a subtest":
		t.Run("sub", func(t *testing.T) { t.Error("as asked") })
	case "fails in a parallel subtest":
		t.Run("sub", func(t *testing.T) { t.Parallel(); t.Error("as asked") })
	case "fails in a cleanup":
		t.Cleanup(func() { t.Error("as asked") })
	default:
		t.Fatalf("unknown scenario %q", scenario)
	}
}

// runScenario runs TestScenario in a child process that leaves its records in dir.
func runScenario(t *testing.T, scenario, dir string) (output string, err error) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe, "-test.run=^TestScenario$", "-test.v")
	cmd.Env = append(os.Environ(), "SEMEL_CLAUSE_SCENARIO="+scenario, DirEnv+"="+dir)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestProvesRecordsOnlyWhatPassed(t *testing.T) {
	for _, test := range []struct {
		scenario string
		passes   bool
		records  int
	}{
		{"passes", true, 1},
		{"skips", true, 0},
		{"fails", false, 0},
		{"fails in a subtest", false, 0},
		{"fails in a parallel subtest", false, 0},
		{"fails in a cleanup", false, 0},
	} {
		t.Run("a test that "+test.scenario, func(t *testing.T) {
			dir := t.TempDir()
			output, err := runScenario(t, test.scenario, dir)
			if passed := err == nil; passed != test.passes {
				t.Fatalf("child: %v\n%s", err, output)
			}
			records, err := ReadRecords(dir)
			if err != nil || len(records) != test.records {
				t.Fatalf("records = %v, %v, want %d of them\n%s", records, err, test.records, output)
			}
		})
	}
	t.Run("a relative directory fails the test", func(t *testing.T) {
		output, err := runScenario(t, "passes", "records")
		if err == nil || !strings.Contains(output, "want an absolute path") {
			t.Fatalf("child: %v\n%s", err, output)
		}
	})
}

func TestReadRecords(t *testing.T) {
	t.Run("a missing directory is an error", func(t *testing.T) {
		if _, err := ReadRecords(filepath.Join(t.TempDir(), "none")); err == nil {
			t.Fatal("no error")
		}
	})
	t.Run("a torn record is an error that names the file", func(t *testing.T) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "clauses-1.jsonl"), []byte(`{"clause":"CO`), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadRecords(dir); err == nil || !strings.Contains(err.Error(), "clauses-1.jsonl") {
			t.Fatalf("error = %v", err)
		}
	})
	t.Run("other files are left alone", func(t *testing.T) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "notes.txt"), []byte("no record"), 0o600); err != nil {
			t.Fatal(err)
		}
		if records, err := ReadRecords(dir); err != nil || len(records) != 0 {
			t.Fatalf("ReadRecords = %v, %v", records, err)
		}
	})
}
