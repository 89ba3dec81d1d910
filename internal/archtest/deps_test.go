package archtest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// goMod is the part of go mod edit -json that the rules use.
type goMod struct {
	Require []struct {
		Path     string
		Indirect bool
	}
	Replace []struct {
		Old struct{ Path string }
	}
}

// replaceFaults finds replace directives: they don't apply to those who import the
// module, who would get something that wasn't tested.
func replaceFaults(mod goMod) []string {
	var faults []string
	for _, r := range mod.Replace {
		faults = append(faults, "go.mod replaces "+r.Old.Path)
	}
	return faults
}

var dependencyRow = regexp.MustCompile("(?m)^\\| `([^`]+)` \\|")

// dependencyFaults compares the modules that go.mod requires directly with
// the first column of the table in docs/dependencies.md.
func dependencyFaults(mod goMod, page string) []string {
	var direct, listed, faults []string
	for _, r := range mod.Require {
		if !r.Indirect {
			direct = append(direct, r.Path)
		}
	}
	for _, row := range dependencyRow.FindAllStringSubmatch(page, -1) {
		listed = append(listed, row[1])
	}
	for _, path := range direct {
		if !slices.Contains(listed, path) {
			faults = append(faults, path+" is required in go.mod but has no line in docs/dependencies.md")
		}
	}
	for _, path := range listed {
		if !slices.Contains(direct, path) {
			faults = append(faults, path+" has a line in docs/dependencies.md but is not required directly in go.mod")
		}
	}
	return faults
}

// besides heads the modules that users don't get with a package of ours.
const besides = "## What only tests or an example need"

// besidesFaults compares the modules below that heading with those that no package for users
// imports.
func besidesFaults(mod goMod, page string, pkgs []pkg) []string {
	_, page, _ = strings.Cut(page, besides)
	var listed, faults []string
	for _, row := range dependencyRow.FindAllStringSubmatch(page, -1) {
		listed = append(listed, row[1])
	}
	for _, r := range mod.Require {
		needed := slices.ContainsFunc(pkgs, func(p pkg) bool {
			return !under(p.rel(), testSupport...) && !under(p.rel(), "examples") &&
				slices.ContainsFunc(p.Imports, func(path string) bool { return under(path, r.Path) })
		})
		switch {
		case r.Indirect:
		case needed && slices.Contains(listed, r.Path):
			faults = append(faults, r.Path+" is listed as one that only tests or an example need, and a package for users imports it")
		case !needed && !slices.Contains(listed, r.Path):
			faults = append(faults, r.Path+" is needed by tests or an example only: list it so")
		}
	}
	return faults
}

func TestDependencies(t *testing.T) {
	out, err := output("go", "mod", "edit", "-json")
	if err != nil {
		t.Fatal(err)
	}
	var mod goMod
	if err := json.Unmarshal([]byte(out), &mod); err != nil {
		t.Fatal(err)
	}
	t.Run("go.mod replaces nothing", func(t *testing.T) { report(t, replaceFaults(mod)) })
	t.Run("docs/dependencies.md lists the direct requirements of go.mod", func(t *testing.T) {
		page, err := os.ReadFile(filepath.Join(root, "docs", "dependencies.md"))
		if err != nil {
			t.Fatal(err)
		}
		report(t, dependencyFaults(mod, string(page)))
		report(t, besidesFaults(mod, string(page), packages(t)))
	})
}

func TestDependencyRulesFind(t *testing.T) {
	var mod goMod
	err := json.Unmarshal([]byte(`{
		"Require": [{"Path": "a.com/listed"}, {"Path": "a.com/new"}, {"Path": "a.com/indirect", "Indirect": true}],
		"Replace": [{"Old": {"Path": "a.com/listed"}}]
	}`), &mod)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("a replace", func(t *testing.T) { wantFaults(t, replaceFaults(mod), "replaces a.com/listed") })
	t.Run("a module in one place only", func(t *testing.T) {
		page := "| module | why |\n|---|---|\n| `a.com/listed` | x |\n| `a.com/gone` | y |\n"
		wantFaults(t, dependencyFaults(mod, page), "a.com/new is required", "a.com/gone has a line")
	})
	t.Run("a module that users get, or don't", func(t *testing.T) {
		page := "| `a.com/new` | x |\n" + besides + "\n| `a.com/listed` | x |\n"
		pkgs := []pkg{
			{ImportPath: modulePath + "/client", Imports: []string{"a.com/listed/sub", "a.com/newer"}},
			{ImportPath: modulePath + "/examples/a", Imports: []string{"a.com/new"}},
		}
		wantFaults(t, besidesFaults(mod, page, pkgs), "a.com/listed is listed", "a.com/new is needed by tests")
	})
}
