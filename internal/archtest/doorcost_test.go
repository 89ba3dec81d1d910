package archtest

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// costPage says what the files of doors over the bound may cost.
const costPage = "../../docs/adr/0029-what-a-door-may-cost.md"

var costRow = regexp.MustCompile("(?m)^\\| `(door/[a-z0-9]+)` \\| `([^`]+)` \\| ([0-9]+) \\|")

// costFaults compares the rows of the page with the files of the doors that it has.
func costFaults(page string, files map[string]string) (faults []string) {
	rows := costRow.FindAllStringSubmatch(page, -1)
	var doors, listed []string
	for _, row := range rows {
		lines := 0
		for name := range strings.FieldsSeq(row[2]) {
			file := row[1] + "/" + name + ".go"
			text, is := files[file]
			if !is || slices.Contains(listed, file) {
				faults = append(faults, file+" isn't there, or is there twice")
			}
			listed, lines = append(listed, file), lines+strings.Count(text, "\n")
		}
		if most, _ := strconv.Atoi(row[3]); lines > most {
			faults = append(faults, fmt.Sprintf("%s of %s: %d lines, and may be %d", row[2], row[1], lines, most))
		}
		doors = append(doors, row[1]+"/")
	}
	for name := range files {
		of := slices.ContainsFunc(doors, func(d string) bool { return strings.HasPrefix(name, d) })
		if of && strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") && !slices.Contains(listed, name) {
			faults = append(faults, name+" is in no row")
		}
	}
	return faults
}

// TestDoorCosts holds each group of files of a door over its bound to what the page allows.
func TestDoorCosts(t *testing.T) {
	page, err := os.ReadFile(costPage)
	if err != nil {
		t.Fatal(err)
	}
	over, err := os.ReadFile(ceilingList)
	if err != nil {
		t.Fatal(err)
	}
	may, err := ceilings(string(over))
	if err != nil {
		t.Fatal(err)
	}
	files := treeFiles(t)
	all, _, err := measures(files)
	if err != nil {
		t.Fatal(err)
	}
	for what := range may {
		if d, is := strings.CutPrefix(what, "lines door/"); is && all[what] > 0 && !strings.Contains(string(page), "| `door/"+d+"` |") {
			t.Errorf("door/%s is over its bound, and %s doesn't say why", d, costPage)
		}
	}
	report(t, costFaults(string(page), files))
}

func TestDoorCostsFind(t *testing.T) {
	page := "| `door/a` | `one two` | 2 | x |\n| `door/a` | `two` | 9 | x |\n"
	wantFaults(t, costFaults(page, map[string]string{"door/a/one.go": "\n\n\n", "door/a/two_test.go": "", "door/a/three.go": "", "door/b/x.go": ""}),
		"door/a/two.go isn't there", "one two of door/a: 3 lines, and may be 2", "door/a/two.go isn't there, or is there twice", "door/a/three.go is in no row")
}
