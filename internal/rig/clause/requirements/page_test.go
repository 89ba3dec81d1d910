package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/semelhq/semel/internal/rig/clause"
)

func TestRender(t *testing.T) {
	line := func(page, id string) string {
		for l := range strings.Lines(page) {
			if strings.HasPrefix(l, "| "+id+" ") {
				return l
			}
		}
		return ""
	}
	var records []clause.Record
	for n := range 8 {
		records = append(records, record("CORE-INV.1", module+"/store/memstore", fmt.Sprintf("TestStore/case_%d", n), "f.go", n))
	}
	records = append(records,
		record("CORE-INV.2", module, "TestRoot/a|b", "f.go", 1),
		record("CORE-INV.2", module+"/b", "TestB", "f.go", 2),
		record("CORE-INV.2", module+"/b", "TestB", "g.go", 3),
	)
	faults := []clause.Fault{
		{Clause: "CORE-INV.1", File: "f.go", Func: "Store.Apply", Package: "./store/memstore", Test: "TestStore/case_0"},
		{Clause: "CORE-INV.2", File: "f.go", Func: "*", Package: "./b", Test: "TestB"},
	}
	records = append(records, record("CORE-INV.3", module+"/b", "TestB", "f.go", 4))
	rendered := func() string {
		p, err := findingsOf(module, records, faults)
		if err != nil {
			t.Fatal(err)
		}
		return render(p)
	}
	page := rendered()

	t.Run("six tests are named and the rest counted", func(t *testing.T) {
		got := line(page, "CORE-INV.1")
		if !strings.Contains(got, "`store/memstore TestStore/case_0`, ") || !strings.HasSuffix(got, "`store/memstore TestStore/case_5` and 2 more | `f.go` `Store.Apply`: `store/memstore TestStore/case_0` |\n") {
			t.Fatalf("line = %q", got)
		}
	})
	t.Run("of a long list, tests of other packages come before more of one, and examples last", func(t *testing.T) {
		got := strings.Join(spread([]string{"examples/x TestC", "a TestA", "b TestC", "a TestB", "b TestC", "a TestC"}), ", ")
		if want := "a TestA, b TestC, examples/x TestC, a TestB, a TestC"; got != want {
			t.Fatalf("%s, want %s", got, want)
		}
	})
	t.Run("tests are sorted, named once, and kept inside their cell", func(t *testing.T) {
		if got := line(page, "CORE-INV.2"); !strings.Contains(got, "| `b TestB`, `m TestRoot/a\\|b` |") {
			t.Fatalf("line = %q", got)
		}
	})
	t.Run("a clause whose fault nobody has named is not proved", func(t *testing.T) {
		if got := line(page, "CORE-INV.3"); !strings.HasSuffix(got, "| not yet proved, but tested: `b TestB` | – |\n") || !strings.Contains(page, "**2 of ") {
			t.Fatalf("line = %q", got)
		}
	})
	t.Run("a fault is for a test that names the clause, or for a part of one", func(t *testing.T) {
		at := func(id, pkg, test string) error {
			return unclaimed(module, []clause.Fault{{Clause: id, Package: pkg, Test: test}}, records)
		}
		if err := errors.Join(at("CORE-INV.1", "./store/memstore", "TestStore"), at("CORE-INV.1", "./store/memstore", "TestStore/case_1"), at("CORE-INV.2", "./b", "TestB/part")); err != nil {
			t.Error(err)
		}
		if at("CORE-INV.1", "./store/memstore", "TestOther") == nil || at("CORE-INV.1", "./b", "TestB") == nil || at("CORE-STATE.1", "./b", "TestB") == nil {
			t.Error("a test that names no clause is taken for a proof")
		}
	})
	t.Run("every clause has its line", func(t *testing.T) {
		for _, c := range clause.All() {
			if line(page, c.ID) == "" {
				t.Errorf("%s has none", c.ID)
			}
		}
	})
	t.Run("the order of records does not matter", func(t *testing.T) {
		slices.Reverse(records)
		if rendered() != page {
			t.Fatal("another page")
		}
	})
}

func TestCompare(t *testing.T) {
	for _, test := range []struct{ name, committed, want, shown string }{
		{"equal pages", "a\nb\n", "a\nb\n", ""},
		{"a changed line", "a\nb\n", "a\nc\n", "line 2:\n  committed: b\n  this run:  c"},
		{"a missing line", "a", "a\nb", "line 2:\n  committed: (end of file)\n  this run:  b"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := compare(requirementsPage, test.committed, test.want)
			if (err == nil) != (test.shown == "") || err != nil && !strings.HasSuffix(err.Error(), test.shown) {
				t.Fatalf("compare = %v, want %q", err, test.shown)
			}
		})
	}
}
