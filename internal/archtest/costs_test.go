package archtest

import (
	"fmt"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// costPages are the decisions that say what the doors and stores over their bounds spend their
// lines on.
var costPages = []string{"../../docs/adr/0029-what-a-door-may-cost.md", "../../docs/adr/0030-what-a-store-may-cost.md"}

// costSlack is how far a group may be below its number.
const costSlack = 60

var costRow = regexp.MustCompile("^\\| (\\*\\*)?(`[^|]*`)(?:\\*\\*)? \\| .* \\| (\\d+) \\|$")

// costFaults compares the tables of decisions with the files of the tree. What isn't in bold must
// be within the bound of its room.
func costFaults(decisions string, files map[string]string) (faults []string) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	lines := map[string]int{} // of the files that no row has had
	for name, text := range files {
		if strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") {
			lines[name] = strings.Count(text, "\n")
		}
	}
	plain, dir := map[string]int{}, ""
	for line := range strings.Lines(decisions) {
		line = strings.TrimSpace(line)
		if title, ok := strings.CutPrefix(line, "### "); ok {
			dir = title
			plain[dir] = 0
			continue
		}
		row := costRow.FindStringSubmatch(line)
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
			plain[dir] += sum
		}
		if sum > most || sum < most-costSlack {
			fault("%s: %s has %d lines, and the decision says %d", dir, row[2], sum, most)
		}
	}
	for dir, n := range plain {
		bound := 0
		if i := slices.IndexFunc(rooms, func(r room) bool { return r.name == dir }); i >= 0 {
			bound = rooms[i].bound
		}
		if n == 0 || n > bound {
			fault("%s: %d lines aren't in bold, and may be %d", dir, n, bound)
		}
		for file := range lines {
			if strings.HasPrefix(file, dir+"/") {
				fault("%s has no row", file)
			}
		}
	}
	return faults
}

// TestCosts holds each group of files of a door or store over its bound to what a decision allows.
func TestCosts(t *testing.T) {
	var decisions strings.Builder
	for _, page := range costPages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		decisions.Write(text)
	}
	files := treeFiles(t)
	over, _, err := measures(files)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rooms {
		_, large := over["lines "+r.name]
		if has := strings.Contains(decisions.String(), "\n### "+r.name+"\n"); strings.Contains(r.name, "/") && has != large {
			t.Errorf("%s is over its bound: %t, and has a table: %t", r.name, large, has)
		}
	}
	report(t, costFaults(decisions.String(), files))
}

func TestCostsFind(t *testing.T) {
	files := map[string]string{
		"store/pgstore/a.go": strings.Repeat("\n", 100), "store/pgstore/below/b.go": strings.Repeat("\n", 3001), "store/pgstore/a_test.go": "\n", "store/other/b.go": "\n",
	}
	const head = "### store/pgstore\n\n| Files | What | Lines |\n|---|---|---|\n"
	wantFaults(t, costFaults(head+"| `a` | x | 100 |\n| **`below/b`** | **y** | 3001 |\n", files))
	wantFaults(t, costFaults(head+"| `a` | x | 100 |\n| `below/b` | y | 3001 |\n", files), "3101 lines aren't in bold, and may be 3000")
	wantFaults(t, costFaults(head+"| `a` | x | 100 |\n", files), "store/pgstore/below/b.go has no row")
	wantFaults(t, costFaults(head+"| `a` | x | 99 |\n| **`below/b` `c`** | y | 3100 |\n", files), "has 100 lines", "store/pgstore/c.go has no file, or two rows", "has 3001 lines")
	wantFaults(t, costFaults(head+"| `a` | x | 100 |\n| **`a`** | x | 50 |\n| **`below/b`** | y | 3001 |\n", files), "store/pgstore/a.go has no file, or two rows")
}
