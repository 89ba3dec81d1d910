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

// costPages are the decisions that say what the doors, the stores, the service and the judge spend
// the lines over their bounds on.
var costPages = []string{"../../docs/adr/0029-what-a-door-may-cost.md", "../../docs/adr/0030-what-a-store-may-cost.md", "../../docs/adr/0031-what-the-service-may-cost.md", "../../docs/adr/0034-what-the-judge-may-cost.md"}

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
	plain, dir, of := map[string]int{}, "", room{} // by room; the table's directory and room
	for line := range strings.Lines(decisions) {
		line = strings.TrimSpace(line)
		if title, ok := strings.CutPrefix(line, "### "); ok {
			dir, of = title, roomOf(title)
			plain[of.name] += 0
			continue
		}
		row := costRow.FindStringSubmatch(line)
		if row == nil {
			continue
		}
		most, _ := strconv.Atoi(row[3])
		sum := 0
		for name := range strings.FieldsSeq(row[2]) {
			name = path.Join(dir, strings.TrimPrefix(name, "`"))
			n, ok := take(lines, strings.TrimSuffix(name, "`"))
			if !ok {
				fault("%s has no file, or two rows", strings.ReplaceAll(name, "`", ".go"))
			}
			sum += n
		}
		if row[1] == "" {
			plain[of.name] += sum
		}
		if sum > most || sum < most-costSlack {
			fault("%s: %s has %d lines, and the decision says %d", dir, row[2], sum, most)
		}
	}
	for name, n := range plain {
		i := slices.IndexFunc(rooms, func(r room) bool { return r.name == name })
		if i < 0 {
			fault("a table is of no room")
			continue
		}
		if n == 0 || n > rooms[i].bound {
			fault("%s: %d lines aren't in bold, and may be %d", name, n, rooms[i].bound)
		}
		for file := range lines {
			if rooms[i].in(file) {
				fault("%s has no row", file)
			}
		}
	}
	return faults
}

// roomOf is the room that a directory belongs to.
func roomOf(dir string) room {
	i := slices.IndexFunc(rooms, func(r room) bool { return r.in(dir + "/a.go") })
	if i < 0 {
		return room{}
	}
	return rooms[i]
}

// take removes a file, or the files of a directory, and returns their lines.
func take(lines map[string]int, name string) (sum int, ok bool) {
	for file, n := range lines {
		if file == name+".go" || path.Dir(file)+"/" == name {
			sum, ok = sum+n, true
			delete(lines, file)
		}
	}
	return sum, ok
}

// TestCosts holds each group of files of a room over its bound to what a decision allows.
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
		if has := strings.Contains(decisions.String(), "\n### "+r.name+"\n"); (strings.Contains(r.name, "/") || r.name == "service") && has != large {
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
	files = map[string]string{"service/a.go": strings.Repeat("\n", 9000), "internal/service/b/c.go": strings.Repeat("\n", 7000), "internal/service/b/d.go": "\n"}
	const upper, lower = "### service\n\n| `a` | x | 9000 |\n", "### internal/service\n\n"
	wantFaults(t, costFaults(lower+"| **`b/`** | **y** | 7001 |\n\n"+upper, files))
	wantFaults(t, costFaults(lower+"| `b/` | y | 7001 |\n\n"+upper, files), "service: 16001 lines aren't in bold, and may be 15000")
	wantFaults(t, costFaults(lower+"| **`b/c`** | **y** | 7000 |\n\n"+upper, files), "internal/service/b/d.go has no row")
	wantFaults(t, costFaults(lower+"| **`b/c` `b/`** | **y** | 7001 |\n| **`b/`** | **y** | 0 |\n\n"+upper, files), "internal/service/b/.go has no file, or two rows")
}
