package archtest

import (
	"fmt"
	"os"
	"path"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// storeCosts is the decision that says what the stores over their bound spend their lines on.
const storeCosts = "../../docs/adr/0030-what-a-store-may-cost.md"

const (
	storeBound = 3_000 // of a store, without the groups in bold
	costSlack  = 60    // how far a group may be below its number
)

var storeRow = regexp.MustCompile("^\\| (\\*\\*)?(`[^|]*`)(?:\\*\\*)? \\| .* \\| (\\d+) \\|$")

// storeCostFaults compares the tables of the decision with the files of the tree.
func storeCostFaults(decision string, files map[string]string) (faults []string) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	lines := map[string]int{} // of the files that no row has had
	for name, text := range files {
		if strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") {
			lines[name] = strings.Count(text, "\n")
		}
	}
	stores, dir := map[string]int{}, ""
	for line := range strings.Lines(decision) {
		line = strings.TrimSpace(line)
		if title, ok := strings.CutPrefix(line, "### "); ok {
			dir = title
			stores[dir] = 0
			continue
		}
		row := storeRow.FindStringSubmatch(line)
		if row == nil {
			continue
		}
		most, _ := strconv.Atoi(row[3])
		sum := 0
		for name := range strings.FieldsSeq(row[2]) {
			file := path.Join(dir, strings.Trim(name, "`")+".go")
			n, ok := lines[file]
			if !ok {
				fault("%s has no file, or two rows", file)
			}
			delete(lines, file)
			sum += n
		}
		if row[1] == "" {
			stores[dir] += sum
		}
		if sum > most || sum < most-costSlack {
			fault("%s: %s has %d lines, and the decision says %d", dir, row[2], sum, most)
		}
	}
	for dir, n := range stores {
		if n == 0 || n > storeBound {
			fault("%s: %d lines aren't in bold, and may be %d", dir, n, storeBound)
		}
		for file := range lines {
			if path.Dir(file) == dir {
				fault("%s has no row", file)
			}
		}
	}
	return faults
}

func TestStoreCosts(t *testing.T) {
	decision, err := os.ReadFile(storeCosts)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(decision), "\n### store/"); n != 2 {
		t.Errorf("the decision has tables of %d stores, want 2", n)
	}
	report(t, storeCostFaults(string(decision), treeFiles(t)))
}

func TestStoreCostsFind(t *testing.T) {
	files := map[string]string{
		"store/a/a.go": strings.Repeat("\n", 100), "store/a/b.go": strings.Repeat("\n", 3001), "store/a/a_test.go": "\n", "store/b/b.go": "\n",
	}
	const head = "### store/a\n\n| Files | What | Lines |\n|---|---|---|\n"
	wantFaults(t, storeCostFaults(head+"| `a` | x | 100 |\n| **`b`** | **y** | 3001 |\n", files))
	wantFaults(t, storeCostFaults(head+"| `a` | x | 100 |\n| `b` | y | 3001 |\n", files), "3101 lines aren't in bold")
	wantFaults(t, storeCostFaults(head+"| `a` | x | 100 |\n", files), "store/a/b.go has no row")
	wantFaults(t, storeCostFaults(head+"| `a` | x | 99 |\n| **`b` `c`** | y | 3100 |\n", files), "has 100 lines", "store/a/c.go has no file", "has 3001 lines")
}
