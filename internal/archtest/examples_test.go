package archtest

import (
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
)

// exampleFaults finds examples that nobody can play with: each program brings what it talks to and
// prints requests to send, its README says how, and a test sends them.
func exampleFaults(files map[string]string) (faults []string) {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		dir, file := path.Split(name)
		if file != "main.go" || !strings.HasPrefix(dir, "examples/") {
			continue
		}
		var tests strings.Builder
		for other, text := range files {
			if strings.HasPrefix(other, dir) && strings.HasSuffix(other, "_test.go") {
				tests.WriteString(text)
			}
		}
		if !strings.Contains(files[name], "\"demo\", false") {
			faults = append(faults, name+" has no -demo")
		}
		if !strings.Contains(files[dir+"README.md"], "-demo\n") {
			faults = append(faults, dir+"README.md doesn't show -demo")
		}
		if !strings.Contains(tests.String(), "demotest.Start(") {
			faults = append(faults, "no test sends what the demo of "+dir+" prints")
		}
	}
	return faults
}

func TestExamplesHaveDemos(t *testing.T) { report(t, exampleFaults(treeFiles(t))) }

func TestExampleRuleFinds(t *testing.T) {
	wantFaults(t, exampleFaults(map[string]string{"examples/a/main.go": "package main", "examples/a/main_test.go": "package main", "cmd/a/main.go": ""}),
		"examples/a/main.go has no -demo", "examples/a/README.md doesn't show -demo", "no test sends what the demo of examples/a/ prints")
	wantFaults(t, exampleFaults(map[string]string{
		"examples/a/main.go": `flag.Bool("demo", false, "")`, "examples/a/README.md": "go run ./examples/a -demo\n", "examples/a/demo_test.go": "demotest.Start(t, demo)",
	}))
}
