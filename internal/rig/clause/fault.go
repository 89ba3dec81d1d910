package clause

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"sync"
)

// A Fault is a change of the source that breaks a clause, and the test that must fail with it.
// A clause without one counts as not yet proved, however many tests name it.
type Fault struct {
	Clause  string
	File    string // slash-separated, relative to the module root
	Func    string // with its receiver's type in front, as in Engine.Begin; or a variable, or * for the file
	Old     string // text that stands once in the function
	New     string // text that stands there instead
	Package string // of the test, as you give it to go test
	Test    string // or a subtest of one, by its full name
}

//go:embed faults.tsv
var faultsTSV string

var faults = sync.OnceValue(func() []Fault {
	all, err := parseFaults(faultsTSV)
	if err != nil {
		panic("faults.tsv: " + err.Error())
	}
	return all
})

// Faults returns one fault for each clause that has one. The caller must not change the slice.
func Faults() []Fault { return faults() }

// parseFaults reads the table: a heading line, then one fault per line with six fields separated
// by tabs. In the texts of the change \n and \t stand for themselves, as in a Go string.
func parseFaults(tsv string) ([]Fault, error) {
	lines := strings.Split(strings.TrimSuffix(tsv, "\n"), "\n")
	if lines[0] != "clause\tfile\tfunction\told\tnew\ttest" {
		return nil, fmt.Errorf("line 1: unexpected heading %q", lines[0])
	}
	var all []Fault
	seen := make(map[string]bool)
	for i, line := range lines[1:] {
		f := strings.Split(line, "\t")
		if len(f) != 6 {
			return nil, fmt.Errorf("line %d: %d fields, want 6", i+2, len(f))
		}
		pkg, test, ok := strings.Cut(f[5], " ")
		fault := Fault{Clause: f[0], File: f[1], Func: f[2], Old: unescape(f[3]), New: unescape(f[4]), Package: pkg, Test: test}
		switch _, known := byID()[fault.Clause]; {
		case !known:
			return nil, fmt.Errorf("line %d: unknown clause %q", i+2, fault.Clause)
		case seen[fault.Clause]:
			return nil, fmt.Errorf("line %d: %s appears twice", i+2, fault.Clause)
		case !ok || !strings.HasPrefix(pkg, "."):
			return nil, fmt.Errorf("line %d: %q is no package, a space, and a test", i+2, f[5])
		case fault.Old == "" || fault.Old == fault.New:
			return nil, fmt.Errorf("line %d: nothing changes", i+2)
		}
		seen[fault.Clause] = true
		all = append(all, fault)
	}
	return all, nil
}

// unescape returns the text that a Go string literal with this text between its quotes has, or
// the text as it is, where that isn't one.
func unescape(s string) string {
	text, err := strconv.Unquote(`"` + strings.ReplaceAll(s, `"`, `\"`) + `"`)
	if err != nil {
		return s
	}
	return text
}
