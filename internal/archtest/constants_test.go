package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every benchmark that CONTRIBUTING.md names for a constant exists.
func TestConstantsHaveTheirBenchmarks(t *testing.T) {
	page, err := os.ReadFile("../../CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("\\| `([a-z/]+)` `(Benchmark[A-Za-z]+)` \\|").FindAllStringSubmatch(string(page), -1)
	if len(named) == 0 {
		t.Fatal("the page names no benchmark")
	}
	for _, m := range named {
		files, err := filepath.Glob(filepath.Join("../..", m[1], "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, file := range files {
			code, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			found = found || strings.Contains(string(code), "\nfunc "+m[2]+"(")
		}
		if !found {
			t.Errorf("%s has no %s", m[1], m[2])
		}
	}
}
