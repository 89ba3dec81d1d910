package main

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/semelhq/semel/internal/rig/clause"
)

// byClause indexes faults by their clauses.
func byClause(faults []clause.Fault) map[string]*clause.Fault {
	m := make(map[string]*clause.Fault, len(faults))
	for i := range faults {
		m[faults[i].Clause] = &faults[i]
	}
	return m
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
