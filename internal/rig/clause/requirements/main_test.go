package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/semelhq/semel/internal/rig/clause"
)

const module = "example.com/m"

// tree writes files, given by slash-separated name, below a new directory.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		file := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// recordsDir writes records as a test process would.
func recordsDir(t *testing.T, records ...clause.Record) string {
	t.Helper()
	var b strings.Builder
	for _, r := range records {
		if err := json.NewEncoder(&b).Encode(r); err != nil {
			t.Fatal(err)
		}
	}
	return tree(t, map[string]string{"clauses-1.jsonl": b.String()})
}

func record(id, pkg, test, file string, line int) clause.Record {
	return clause.Record{Clause: id, Package: pkg, Test: test, Site: clause.Site{File: file, Line: line}}
}

// oneClaim is a module with one call of Proves, in line 6 of a/a_test.go.
func oneClaim() map[string]string {
	return map[string]string{
		"go.mod":               "module " + module + "\n\ngo 1.26\n",
		"docs/requirements.md": "old\n",
		"docs/guarantees.md":   "old\n",
		"a/a_test.go": `package a

import "example.com/m/internal/rig/clause"

func TestA(t *testing.T) {
	clause.Proves(t, "CORE-INV.1", "CORE-INV.2")
}
`,
	}
}

func TestRun(t *testing.T) {
	first := record("CORE-INV.1", module+"/a", "TestA", "a/a_test.go", 6)
	second := record("CORE-INV.2", module+"/a", "TestA", "a/a_test.go", 6)

	wantFault := func(t *testing.T, err error, want string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Fatalf("error = %v, want one with %q", err, want)
		}
	}
	t.Run("proved claims give a page that the check then accepts", func(t *testing.T) {
		root, dir := tree(t, oneClaim()), recordsDir(t, first, second)
		faults := []clause.Fault{{Clause: "CORE-INV.1", File: "a.go", Func: "A", Package: "./a", Test: "TestA"}}
		wantFault(t, run(root, dir, false, clause.Promises{}, []clause.Fault{{Clause: "CORE-INV.1", Package: "./a", Test: "TestB"}}), "TestB, which doesn't name the clause")
		if err := run(root, dir, false, clause.Promises{}, faults); err != nil {
			t.Fatal(err)
		}
		page, err := os.ReadFile(filepath.Join(root, "docs", "requirements.md"))
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{
			fmt.Sprintf("**1 of %d clauses are proved, and 1 declined.**", len(clause.All())),
			"| CORE-INV.1 | MUST | Only one execution per identity is processing at any time. | `a TestA` | `a.go` `A`: `a TestA` |\n",
			"| CORE-INV.3 | MUST | Result and error never change once written. | not yet proved | – |\n",
		} {
			if !strings.Contains(string(page), want) {
				t.Errorf("page lacks %q:\n%s", want, page)
			}
		}
		if err := run(root, dir, true, clause.Promises{}, faults); err != nil {
			t.Fatalf("check: %v", err)
		}
	})
	t.Run("the check refuses another page and writes nothing", func(t *testing.T) {
		root := tree(t, oneClaim())
		wantFault(t, run(root, recordsDir(t, first, second), true, clause.Promises{}, nil), "out of date")
		if page, err := os.ReadFile(filepath.Join(root, "docs", "requirements.md")); err != nil || string(page) != "old\n" {
			t.Errorf("page is now %q, %v", page, err)
		}
	})
	t.Run("a claim without a record is refused by name", func(t *testing.T) {
		wantFault(t, run(tree(t, oneClaim()), recordsDir(t, first), false, clause.Promises{}, nil), "a/a_test.go:6: CORE-INV.2 is claimed")
	})
	t.Run("a record of the same clause from elsewhere does not help", func(t *testing.T) {
		elsewhere := record("CORE-INV.2", module+"/a", "TestA", "a/a_test.go", 7)
		wantFault(t, run(tree(t, oneClaim()), recordsDir(t, first, elsewhere), false, clause.Promises{}, nil), "a/a_test.go:6: CORE-INV.2 is claimed")
	})
	t.Run("a record without a claim is refused by name", func(t *testing.T) {
		stale := record("CORE-INV.3", module+"/a", "TestA", "a/a_test.go", 6)
		wantFault(t, run(tree(t, oneClaim()), recordsDir(t, first, second, stale), false, clause.Promises{}, nil), "CORE-INV.3 is recorded by TestA, but not claimed")
	})
	t.Run("no directory is refused", func(t *testing.T) {
		wantFault(t, run(tree(t, oneClaim()), "", false, clause.Promises{}, nil), "-records")
	})
}

// TestRealRun takes a copy of the clause package into a module of its own and
// runs its tests with the go command, so that nothing between the call of
// Proves and the page is pretended.
func TestRealRun(t *testing.T) {
	files := map[string]string{
		"go.mod":               "module example.com/m\n\ngo 1.26\n",
		"docs/requirements.md": "",
		"docs/guarantees.md":   "",
		"a/a_test.go": `package a

import (
	"os"
	"testing"

	"example.com/m/internal/rig/clause"
)

func TestA(t *testing.T) {
	t.Run("the first", func(t *testing.T) {
		clause.Proves(t,
			"CORE-INV.1",
			"CORE-INV.2",
		)
		if os.Getenv("SKIP_FIRST") != "" {
			t.Skip("as asked")
		}
	})
}
`,
	}
	for _, name := range []string{"clause.go", "guarantee.go", "promises.go", "record.go", "requirements.tsv"} {
		data, err := os.ReadFile(filepath.Join("..", name))
		if err != nil {
			t.Fatal(err)
		}
		files["internal/rig/clause/"+name] = string(data)
	}
	root := tree(t, files)
	goTest := func(env ...string) (dir string) {
		dir = t.TempDir()
		cmd := exec.CommandContext(t.Context(), "go", "test", "-count=1", "./a")
		cmd.Dir = root
		cmd.Env = append(append(os.Environ(), clause.DirEnv+"="+dir), env...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go test: %v\n%s", err, out)
		}
		return dir
	}
	if err := run(root, goTest(), false, clause.Promises{}, nil); err != nil {
		t.Errorf("with the test passing: %v", err)
	}
	if err := run(root, goTest("SKIP_FIRST=1"), false, clause.Promises{}, nil); err == nil {
		t.Error("with the test skipped: no error")
	}
}
