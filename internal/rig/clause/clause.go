// Package clause ties tests to the numbered clauses of the specifications that Semel
// implements. A test names the clauses it proves with [Proves]. If SEMEL_CLAUSE_DIR is
// set, a test run leaves records there of what passed. The program in
// internal/rig/clause/requirements turns these into docs/requirements.md and
// docs/guarantees.md, and refuses claims without a passing test.
//
// This is a test-support package: only tests, and packages that hold tests
// for others to run (store/storetest), may import it.
package clause

import (
	_ "embed"
	"fmt"
	"strings"
	"sync"
)

// A Clause is one numbered requirement of one specification.
type Clause struct {
	ID     string // unique, such as "CORE-INV.1"
	Level  string // MUST, SHOULD or MAY
	Source string // name of the specification it comes from
	Text   string // the requirement, in one sentence or two
}

//go:embed requirements.tsv
var requirementsTSV string

var table = sync.OnceValue(func() []Clause {
	clauses, err := parse(requirementsTSV)
	if err != nil {
		panic("requirements.tsv: " + err.Error())
	}
	return clauses
})

var byID = sync.OnceValue(func() map[string]Clause {
	m := make(map[string]Clause)
	for _, c := range table() {
		m[c.ID] = c
	}
	return m
})

// All returns every clause, in the order of the specifications.
// The caller must not change the slice.
func All() []Clause { return table() }

// Lookup returns the clause with this id, and whether there is one. The guarantees and
// deployments of [Made] have ids too, for the tests that prove them.
func Lookup(id string) (Clause, bool) {
	if c, ok := byID()[id]; ok {
		return c, true
	}
	return Made.lookup(id)
}

// parse reads the table: a heading line, then one clause per line with four
// fields separated by tabs. Ids are unique.
func parse(tsv string) ([]Clause, error) {
	lines := strings.Split(strings.TrimSuffix(tsv, "\n"), "\n")
	if lines[0] != "id\tlevel\tsource\trequirement" {
		return nil, fmt.Errorf("line 1: unexpected heading %q", lines[0])
	}
	var clauses []Clause
	seen := make(map[string]bool)
	for i, line := range lines[1:] {
		number := i + 2
		f := strings.Split(line, "\t")
		if len(f) != 4 {
			return nil, fmt.Errorf("line %d: %d fields, want 4", number, len(f))
		}
		c := Clause{ID: f[0], Level: f[1], Source: f[2], Text: f[3]}
		switch {
		case c.ID == "" || c.Source == "" || c.Text == "":
			return nil, fmt.Errorf("line %d: empty field", number)
		case c.Level != "MUST" && c.Level != "SHOULD" && c.Level != "MAY":
			return nil, fmt.Errorf("line %d: level %q, want MUST, SHOULD or MAY", number, c.Level)
		case seen[c.ID]:
			return nil, fmt.Errorf("line %d: %s appears twice", number, c.ID)
		}
		seen[c.ID] = true
		clauses = append(clauses, c)
	}
	return clauses, nil
}
