package main

import (
	"errors"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/semelhq/semel/internal/rig/clause"
)

// TestFaultsHaveTheirPlaces fails where the code has moved on and a fault could no longer be
// planted, or where its test has gone.
func TestFaultsHaveTheirPlaces(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	byFile := map[string][]clause.Fault{}
	for _, f := range clause.Faults() {
		byFile[f.File] = append(byFile[f.File], f)
	}
	for _, file := range slices.Sorted(maps.Keys(byFile)) {
		src, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file)))
		if err != nil {
			t.Error(err)
			continue
		}
		s, err := guard(src, byFile[file])
		if err != nil {
			t.Error(err)
			continue
		}
		for id, text := range s.alone {
			if _, err := parser.ParseFile(token.NewFileSet(), file, text, 0); err != nil {
				t.Errorf("%s: %v", id, err)
			}
		}
		if _, err := parser.ParseFile(token.NewFileSet(), file, s.text, 0); err != nil {
			t.Errorf("one of %s: %v", file, err)
		}
	}
	for _, f := range clause.Faults() {
		if !declares(t, filepath.Join(root, filepath.FromSlash(f.Package)), f.Test) {
			t.Errorf("%s: %s has no %s", f.Clause, f.Package, f.Test)
		}
	}
}

func declares(t *testing.T, dir, test string) bool {
	name, _, _ := strings.Cut(test, "/")
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(files, func(file string) bool {
		src, err := os.ReadFile(file)
		return err == nil && strings.Contains(string(src), "\nfunc "+name+"(")
	})
}

// TestBreakClauses plants three faults in a module: in a function with a result, in one without,
// and in a variable. The test of the last passes with it.
func TestBreakClauses(t *testing.T) {
	if testing.Short() {
		t.Skip("it runs the go command many times")
	}
	root := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module example.org/world\n\ngo 1.26\n",
		"world.go": `package world

var greeting = "hello"

var said string

func Twice(n int) int { return n * 2 }

func Say() {
	said = greeting
}
`,
		"world_test.go": `package world

import "testing"

func TestTwice(t *testing.T) {
	if Twice(3) != 6 {
		t.Fatal(Twice(3))
	}
}

func TestSay(t *testing.T) {
	if Say(); said != greeting {
		t.Fatal(said)
	}
}
`,
	} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	faults := []clause.Fault{
		{Clause: "A", File: "world.go", Func: "Twice", Old: "n * 2", New: "n + 2", Package: ".", Test: "TestTwice"},
		{Clause: "B", File: "world.go", Func: "Say", Old: "said = greeting", New: "", Package: ".", Test: "TestSay"},
		{Clause: "C", File: "world.go", Func: "greeting", Old: "hello", New: "good bye", Package: ".", Test: "TestSay"},
	}
	var out strings.Builder
	if err := breakClauses(t.Context(), root, faults, &out); !errors.Is(err, errUnnoticed) {
		t.Fatal(err, out.String())
	}
	for _, want := range []string{"\tA\tkilled\t. TestTwice\t", "\tB\tkilled\t. TestSay\t", "\tC\tsurvived\t. TestSay\t", "3 faults, 1 not noticed\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("missing %q in\n%s", want, out.String())
		}
	}
	for _, bad := range []clause.Fault{
		{Clause: "A", File: "world.go", Func: "Thrice", Old: "n * 2", Package: ".", Test: "TestTwice"},
		{Clause: "A", File: "world.go", Func: "Twice", Old: "n", Package: ".", Test: "TestTwice"},
		{Clause: "A", File: "world.go", Func: "Twice", Old: "n * 2", New: "n * 2", Package: ".", Test: "TestFour"},
	} {
		if err := breakClauses(t.Context(), root, []clause.Fault{bad}, &out); err == nil || errors.Is(err, errUnnoticed) {
			t.Errorf("%v: %v", bad, err)
		}
	}
}

func TestChosen(t *testing.T) {
	var all []clause.Fault
	for _, id := range []string{"IDS-1", "IDS-2", "MAP-1"} {
		all = append(all, clause.Fault{Clause: id})
	}
	for _, c := range []struct {
		prefixes string
		tenth    int
		want     string
	}{
		{"", -1, "IDS-1 IDS-2 MAP-1"}, {"IDS", -1, "IDS-1 IDS-2"}, {"IDS-2,MAP", -1, "IDS-2 MAP-1"}, {"", 11, "IDS-2"}, {"IDS-1", 1, ""},
	} {
		var got []string
		for _, f := range chosen(all, c.prefixes, c.tenth) {
			got = append(got, f.Clause)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%q, %d: %v", c.prefixes, c.tenth, got)
		}
	}
}
