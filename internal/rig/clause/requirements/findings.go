package main

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/semelhq/semel/internal/rig/clause"
)

// findings are about each clause: the records of its tests, why it is declined, and the fault that
// one of the tests notices.
type findings struct {
	module   string
	records  map[string][]clause.Record
	declined map[string]string
	faults   map[string]*clause.Fault
}

// findingsOf indexes a run's records and the faults by their clauses.
func findingsOf(module string, records []clause.Record, faults []clause.Fault) (*findings, error) {
	p := &findings{module: module, records: make(map[string][]clause.Record), faults: make(map[string]*clause.Fault, len(faults))}
	for _, r := range records {
		p.records[r.Clause] = append(p.records[r.Clause], r)
	}
	for i := range faults {
		p.faults[faults[i].Clause] = &faults[i]
	}
	var err error
	p.declined, err = declinedClauses(records)
	return p, err
}

// proved reports whether a test proves the clause, and would notice if it were broken.
func (p *findings) proved(id string) bool { return len(p.records[id]) > 0 && p.faults[id] != nil }

// by says for readers what proves the clause.
func (p *findings) by(id string) string {
	var tests []string
	for _, r := range p.records[id] {
		tests = append(tests, testName(p.module, r))
	}
	switch {
	case p.declined[id] != "":
		return "declined: " + cell(p.declined[id])
	case len(tests) == 0:
		return "not yet proved"
	case !p.proved(id):
		return "not yet proved, but tested: " + list(spread(tests), shownTests)
	}
	return list(spread(tests), shownTests)
}

// unclaimed lists the faults whose tests don't name the clause. Such a test may fail for another
// reason.
func unclaimed(module string, faults []clause.Fault, records []clause.Record) error {
	claimed := make(map[string]bool, len(records))
	for _, r := range records {
		for test := r.Test; test != "" && test != "."; test = path.Dir(test) {
			claimed[r.Clause+" "+r.Package+" "+test] = true
		}
	}
	var errs []error
	for _, f := range faults {
		named := false
		for test := f.Test; test != "" && test != "."; test = path.Dir(test) {
			named = named || claimed[f.Clause+" "+path.Join(module, f.Package)+" "+test]
		}
		if !named {
			errs = append(errs, fmt.Errorf("%s: its fault is for %s %s, which doesn't name the clause, or didn't pass", f.Clause, f.Package, f.Test))
		}
	}
	return errors.Join(errs...)
}

// brokenBy names where a fault is planted, and the test that notices it.
func brokenBy(f *clause.Fault) string {
	if f == nil {
		return "–"
	}
	where := "`" + f.File + "`"
	if f.Func != "*" {
		where += " `" + f.Func + "`"
	}
	return where + ": `" + cell(strings.TrimPrefix(f.Package, "./")+" "+f.Test) + "`"
}
