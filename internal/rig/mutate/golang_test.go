package main

import (
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"
)

// changes are the mutations of a piece of source, each as what is shown of it, " => "
// and the lines that differ.
func changes(t *testing.T, src string) []string {
	t.Helper()
	all, err := mutationsOf("a.go", []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range all {
		got = append(got, m.fn+": "+m.what+" => "+differing(src, string(m.apply())))
	}
	return got
}

// differing are the lines of b between those at both ends that are as in a.
func differing(a, b string) string {
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	for len(x) > 0 && len(y) > 0 && x[0] == y[0] {
		x, y = x[1:], y[1:]
	}
	for len(x) > 0 && len(y) > 0 && x[len(x)-1] == y[len(y)-1] {
		x, y = x[:len(x)-1], y[:len(y)-1]
	}
	return strings.Join(strings.Fields(strings.Join(y, " ")), " ")
}

func compareLists(t *testing.T, got, want []string) {
	t.Helper()
	for _, g := range got {
		if !slices.Contains(want, g) {
			t.Errorf("not wanted: %s", g)
		}
	}
	for _, w := range want {
		if !slices.Contains(got, w) {
			t.Errorf("missing: %s", w)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d mutations, not %d", len(got), len(want))
	}
}

func TestMutationsOfGo(t *testing.T) {
	for _, c := range []struct {
		name, body string
		want       []string
	}{
		{"conditions", "if a < 1 {\n\tb()\n}", []string{
			"f: negate a < 1 => if !(a < 1) {", "f: < becomes <= in a < 1 => if a <= 1 {", "f: 1 becomes 2 => if a < 2 {", "f: drop b() => ",
		}},
		{"a comparison is negated once", "if a == b {\n}", []string{"f: == becomes != in a == b => if a != b {"}},
		{"a negation is dropped", "if !a {\n}", []string{"f: drop the ! of !a => if a {"}},
		{"and, or", "_ = a && b || c", []string{
			"f: && becomes || in a && b => _ = a || b || c", "f: || becomes && in a && b || c => _ = a && b && c", "f: drop _ = a && b || c => ",
		}},
		{"sums, but not of texts", "x := a + b - c*d + \"x\"", []string{
			"f: + becomes - in a + b => x := a - b - c*d + \"x\"", "f: - becomes + in a + b - c*d => x := a + b + c*d + \"x\"",
			"f: * becomes / in c*d => x := a + b - c/d + \"x\"",
		}},
		{"statements", "x := 1\nx = y\nx += y\nx++\ng()\ndefer g()\ngo g()\nch <- x\nmu.Lock()\ndefer mu.RUnlock()", []string{
			"f: 1 becomes 2 => x := 2", "f: drop x = y => ", "f: drop x += y => ", "f: drop x++ => ", "f: drop g() => ",
			"f: drop defer g() => ", "f: drop go g() => ", "f: drop ch <- x => ",
		}},
		{"cases", "switch {\ncase a:\n\tb()\ndefault:\n}", []string{
			"f: drop case a: b() => ", "f: negate a => case !(a):", "f: drop b() => ", "f: drop default: => ",
		}},
		{"cases with a value", "switch a {\ncase b, c:\n}", []string{"f: drop case b, c: => "}},
		{"selections", "select {\ncase <-a:\n\tb()\n}", []string{"f: drop case <-a: b() => ", "f: drop b() => "}},
		{"early returns and errors", "if err != nil {\n\treturn 0, err\n}\nreturn x, nil", []string{
			"f: != becomes == in err != nil => if err == nil {", "f: return nil instead of err => return 0, nil",
			"f: drop the early return 0, err => ", "f: 0 becomes 1 => return 1, err",
		}},
		{"loops", "for {\n\tif a {\n\t\tbreak\n\t}\n\tcontinue\n}", []string{
			"f: negate a => if !(a) {", "f: break becomes continue => continue", "f: continue becomes break => break",
		}},
		{"fields, but not their words", "x := T{A: a, Message: m, B: true}", []string{
			"f: drop the field A: a => x := T{Message: m, B: true}", "f: drop the field B: true => x := T{A: a, Message: m}", "f: true becomes false => x := T{A: a, Message: m, B: false}",
		}},
		{"keys of a map are not fields", "x := map[int]int{1: b}", []string{"f: 1 becomes 2 => x := map[int]int{2: b}"}},
		{"the smaller and the larger", "x := min(a, b) + max(a, b)", []string{
			"f: min becomes max => x := max(a, b) + max(a, b)", "f: max becomes min => x := min(a, b) + min(a, b)",
			"f: + becomes - in min(a, b) + max(a, b) => x := min(a, b) - max(a, b)",
		}},
		{"what happens twice has numbers", "g()\ng()", []string{"f: drop g() => ", "f: drop g() #2 => "}},
		{"texts of other kinds stay", "x := \"hello\" + `{\"a\": 1}`", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			src := "package p\n\nfunc f() (int, error) {\n" + c.body + "\n}\n"
			compareLists(t, changes(t, src), c.want)
		})
	}
}

func TestMutationsNameTheirFunction(t *testing.T) {
	src := "package p\n\nvar q = `SELECT a FROM b WHERE c = 1`\n\nfunc (x *T[K]) m() {\n\tg()\n}\n"
	compareLists(t, changes(t, src), []string{
		"q: = becomes <> in SELECT a FROM b WHERE c = 1 => var q = `SELECT a FROM b WHERE c <> 1`",
		"T.m: drop g() => ",
	})
}

func TestMutantsAreGoSource(t *testing.T) {
	for i := range targets {
		files, err := mutants("../../..", &targets[i])
		if err != nil {
			t.Fatal(err)
		}
		for _, all := range files {
			if len(all) < 5 {
				t.Errorf("%s: %d mutations", targets[i].pkg, len(all))
			}
			keys := map[string]bool{}
			for _, m := range all {
				if keys[m.key()] {
					t.Errorf("two mutations are %s", m.key())
				}
				keys[m.key()] = true
				if strings.ContainsAny(m.fn+m.what, "\t\n") {
					t.Errorf("%q does not fit into a line of the list", m.key())
				}
			}
			// Of all of a file, some are enough to see that they parse.
			for _, m := range pick([][]mutation{all}, 20, 1) {
				if _, err := parser.ParseFile(token.NewFileSet(), m.file, m.apply(), 0); err != nil {
					t.Errorf("%s: %v", m.key(), err)
				}
			}
		}
	}
}

func TestKeysDoNotDependOnPlaces(t *testing.T) {
	src := "package p\n\nfunc f() {\n\tg()\n\tg()\n}\n"
	moved := "package p\n\n// More.\nvar x = 1\n\nfunc f() {\n\t// More.\n\tg()\n\tg()\n}\n"
	a, err := mutationsOf("a.go", []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	b, err := mutationsOf("a.go", []byte(moved))
	if err != nil {
		t.Fatal(err)
	}
	for i := range a {
		if a[i].key() != b[i].key() || a[i].start == b[i].start {
			t.Errorf("%q and %q", a[i].key(), b[i].key())
		}
	}
}
