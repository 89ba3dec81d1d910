package archtest

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

const (
	modulePath = "github.com/semelhq/semel"
	root       = "../.." // from this package's directory, where its tests run
)

// pkg is what the rules need from a package of this module.
type pkg struct {
	ImportPath   string
	Name         string
	Dir          string
	Doc          string   // first sentence of the package comment
	GoFiles      []string // names within Dir
	TestGoFiles  []string
	XTestGoFiles []string
	Imports      []string // direct, without those of tests
	Deps         []string // direct and indirect, without those of tests
}

// rel is the package's path within the module, "." for the one in its root.
func (p pkg) rel() string { return relPath(p.ImportPath) }

// relPath is the path of a package within the module, or its whole import path if it is
// from another module.
func relPath(importPath string) string {
	if importPath == modulePath {
		return "."
	}
	return strings.TrimPrefix(importPath, modulePath+"/")
}

func ours(importPath string) bool {
	return importPath == modulePath || strings.HasPrefix(importPath, modulePath+"/")
}

// standard reports whether a package is in the standard library: only there the first
// element of a path has no dot.
func standard(importPath string) bool {
	first, _, _ := strings.Cut(importPath, "/")
	return !strings.Contains(first, ".")
}

var listOnce = sync.OnceValues(func() ([]pkg, error) {
	out, err := output("go", "list", "-json=ImportPath,Name,Dir,Doc,GoFiles,TestGoFiles,XTestGoFiles,Imports,Deps", "./...")
	if err != nil {
		return nil, err
	}
	var pkgs []pkg
	for d := json.NewDecoder(strings.NewReader(out)); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs, nil
		} else if err != nil {
			return nil, err
		}
		pkgs = append(pkgs, p)
	}
})

// packages returns the packages of this module.
func packages(t *testing.T) []pkg {
	t.Helper()
	pkgs, err := listOnce()
	if err != nil {
		t.Fatal(err)
	}
	return pkgs
}

// output runs a command in the module's root and returns what it prints.
func output(name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = root
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		err = errors.New(cmd.String() + ": " + err.Error() + "\n" + string(exit.Stderr))
	}
	return string(out), err
}

// treeFiles returns all files that are or would be committed, with their contents, by
// slash-separated name.
func treeFiles(t *testing.T) map[string]string {
	t.Helper()
	out, err := output("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	if err != nil {
		t.Fatal(err)
	}
	files := make(map[string]string)
	for name := range strings.SplitSeq(strings.TrimSuffix(out, "\x00"), "\x00") {
		data, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
		if errors.Is(err, os.ErrNotExist) {
			continue // deleted, but not committed yet
		}
		if err != nil {
			t.Fatal(err)
		}
		files[name] = string(data)
	}
	return files
}

// report fails the test with every fault.
func report(t *testing.T, faults []string) {
	t.Helper()
	for _, f := range faults {
		t.Error(f)
	}
}

// wantFaults checks that a rule finds exactly the faults with these texts, in this order.
func wantFaults(t *testing.T, faults []string, want ...string) {
	t.Helper()
	if len(faults) != len(want) {
		t.Fatalf("faults = %q, want %d", faults, len(want))
	}
	for i, f := range faults {
		if !strings.Contains(f, want[i]) {
			t.Errorf("fault %q, want one with %q", f, want[i])
		}
	}
}
