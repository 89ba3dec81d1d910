package archtest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
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
}
