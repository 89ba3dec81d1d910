package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
)

// promised is two deployments on two stores, a guarantee that rests on the store and one
// that doesn't.
func promised() clause.Promises {
	return clause.Promises{
		Never: []string{"Never this."},
		Deployments: []clause.Deployment{
			{ID: "ON-A", Name: "alpha", Package: "store/a", Level: "process"},
			{ID: "ON-B", Name: "beta", Package: "store/b", Level: "disk"},
		},
		Modes: []clause.Mode{{Name: "by hand", IDs: []string{"G-ONE"}}},
		Guarantees: []clause.Guarantee{
			{ID: "G-ONE", Title: "One", Text: "One holds.", Clauses: []string{"CORE-INV.1"}, PerStore: true},
			{ID: "G-TWO", Title: "Two", Text: "Two holds.", Except: map[string]string{"ON-A": clause.No}},
		},
	}
}

// provedAll are records that prove all of it.
func provedAll() []clause.Record {
	return []clause.Record{
		record("ON-A", module+"/store/a", "TestA", "a_test.go", 1),
		record("ON-B", module+"/store/b", "TestB", "b_test.go", 1),
		record("CORE-INV.1", module+"/store/a", "TestContract/one", "a_test.go", 2),
		record("G-ONE", module+"/store/b", "TestContract/one", "b_test.go", 2),
		record("CORE-INV.1", module, "TestEngine", "e_test.go", 1),
		record("G-TWO", module+"/proxy", "TestTwo", "p_test.go", 1),
	}
}

func TestUnproved(t *testing.T) {
	if err := unproved(module, promised(), provedAll()); err != nil {
		t.Fatalf("everything is proved: %v", err)
	}
	without := func(i int) []clause.Record { return slices.Delete(provedAll(), i, i+1) }
	for _, test := range []struct {
		name    string
		change  func(p *clause.Promises)
		records []clause.Record
		want    string
	}{
		{"a deployment without a test", nil, without(0), "ON-A (alpha): no test of store/a"},
		{"a guarantee without a test", nil, without(5), "G-TWO (Two): no test"},
		{"a store without a test of what rests on it", nil, without(2), "G-ONE (One): claimed on alpha, but no test of store/a"},
		{"an exception for nothing", func(p *clause.Promises) { p.Guarantees[1].Except["ON-C"] = "no" }, provedAll(), "G-TWO excepts ON-C"},
		{"a mode that rests on nothing", func(p *clause.Promises) { p.Modes[0].IDs[0] = "G-TEN" }, provedAll(), "G-TEN, which is no guarantee"},
	} {
		t.Run(test.name+" is refused", func(t *testing.T) {
			p := promised()
			if test.change != nil {
				test.change(&p)
			}
			if err := unproved(module, p, test.records); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error = %v, want one with %q", err, test.want)
			}
		})
	}
	t.Run("a store on which nothing is promised needs no test", func(t *testing.T) {
		p := promised()
		p.Guarantees[0].Except = map[string]string{"ON-A": clause.No}
		if err := unproved(module, p, without(2)); err != nil {
			t.Error(err)
		}
	})
	t.Run("the program refuses to write the page", func(t *testing.T) {
		root := tree(t, oneClaim())
		dir := recordsDir(t, record("CORE-INV.1", module+"/a", "TestA", "a/a_test.go", 6), record("CORE-INV.2", module+"/a", "TestA", "a/a_test.go", 6))
		if err := run(root, dir, false, promised(), nil); err == nil || !strings.Contains(err.Error(), "without a proof") {
			t.Errorf("run = %v", err)
		}
	})
}

func TestRenderGuarantees(t *testing.T) {
	page := renderGuarantees(module, promised(), provedAll())
	for _, want := range []string{
		"- Never this.\n",
		"| alpha |  | `process` |  |  | `store/a TestA` |\n",
		"| by hand |  |  |  | [One](#g-one) |\n",
		"| guarantee | alpha | beta |\n",
		"| [One](#g-one) | yes | yes |\n",
		"| [Two](#g-two) | no | yes |\n",
		"### One\n\nOne holds.\n",
		"- **Proved by:** `store/a TestContract/one`; `store/b TestContract/one`; `m TestEngine`; clauses CORE-INV.1\n",
		"- **Proved by:** `proxy TestTwo`\n",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("page lacks %q:\n%s", want, page)
		}
	}
}

// TestMade checks what no run of tests can: that what is promised fits together.
func TestMade(t *testing.T) {
	levels := []store.Level{store.LevelProcess, store.LevelCache, store.LevelRelaxed, store.LevelDisk, store.LevelReplicated}
	for _, d := range clause.Made.Deployments {
		if !slices.Contains(levels, store.Level(d.Level)) {
			t.Errorf("%s has the level %q, which no store reports", d.ID, d.Level)
		}
	}
	seen := map[string]bool{}
	for _, g := range clause.Made.Guarantees {
		if seen[g.ID] || seen[g.Title] || g.Text == "" || g.Not == "" || g.If == "" {
			t.Errorf("%s is there twice, or lacks a field", g.ID)
		}
		seen[g.ID], seen[g.Title] = true, true
		for _, id := range g.Clauses {
			if c, ok := clause.Lookup(id); !ok || c.Source == "guarantees" {
				t.Errorf("%s names %q, which is no clause", g.ID, id)
			}
		}
	}
}
