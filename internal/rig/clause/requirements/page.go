package main

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/semelhq/semel/internal/rig/clause"
)

// shownTests is how many tests a clause's line names before it only counts.
const shownTests = 6

// match fails with a list of the claims without a record, and of the records without a
// claim. The latter come from another state of the source, so the run proves nothing
// about this one.
func match(claims []claim, records []clause.Record) error {
	byClause := make(map[string][]clause.Site)
	for _, r := range records {
		byClause[r.Clause] = append(byClause[r.Clause], r.Site)
	}
	var faults []string
	claimed := make(map[string][]claim)
	for _, c := range claims {
		claimed[c.id] = append(claimed[c.id], c)
		if !slices.ContainsFunc(byClause[c.id], c.covers) {
			faults = append(faults, fmt.Sprintf("%s:%d: %s is claimed, but no test that claims it here ran and passed", c.file, c.line, c.id))
		}
	}
	for _, r := range records {
		if !slices.ContainsFunc(claimed[r.Clause], func(c claim) bool { return c.covers(r.Site) }) {
			faults = append(faults, fmt.Sprintf("%s: %s is recorded by %s, but not claimed there", r.Site, r.Clause, r.Test))
		}
	}
	if len(faults) == 0 {
		return nil
	}
	slices.Sort(faults)
	return errors.New("claims and the run do not agree:\n  " + strings.Join(slices.Compact(faults), "\n  "))
}

// render writes the page of requirements. It depends only on the table of clauses and on which tests
// passed: line numbers and the order of the run don't change it.
func render(p *findings) string {
	proved := 0
	for _, c := range clause.All() {
		if p.proved(c.ID) {
			proved++
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, `# Requirements

- **For** people who check Semel against a specification.
- **Afterwards** you can name the test that proves a clause, and the fault that it notices.

<!-- Written by internal/rig/clause/requirements. Run make generate after a change of tests. -->

Every clause of the specifications that Semel implements, with the tests that prove it: package, relative to the module, and name.
A test names its clauses in its first line, and is listed only if it ran and passed in the run that this page was written from.
For each clause there is also a change of the source that breaks it, and one of its tests that must fail then: the last column has the function and the test, [faults.tsv](../internal/rig/clause/faults.tsv) the change. [CONTRIBUTING](../CONTRIBUTING.md) has the command that makes these changes and runs the tests.
A clause without such a test, or without such a change, is "not yet proved", or declined: one that may be followed, and isn't.
[Documents](documents/README.md) says for each clause how to see it, and where Semel differs.

**%d of %d clauses are proved, and %d declined.**
`, proved, len(clause.All()), len(p.declined))
	for _, source := range sources() {
		fmt.Fprintf(&b, "\n## %s\n\n| id | level | requirement | proved by | a fault that is noticed |\n|---|---|---|---|---|\n", source)
		for _, c := range clause.All() {
			if c.Source == source {
				fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", c.ID, c.Level, cell(c.Text), p.by(c.ID), brokenBy(p.faults[c.ID]))
			}
		}
	}
	return b.String()
}

// testName is the package, relative to the module, and the test's name. The package in
// the module's root is named by its last element.
func testName(module string, r clause.Record) string {
	pkg := strings.TrimPrefix(r.Package, module+"/")
	if r.Package == module {
		pkg = path.Base(module)
	}
	return pkg + " " + r.Test
}

// spread sorts tests so that the first of each package come before its others, and tests of
// examples last: a long list shows different kinds of proof.
func spread(tests []string) []string {
	slices.Sort(tests)
	tests = slices.Compact(tests)
	nth, seen := make(map[string]int, len(tests)), map[string]int{}
	for _, t := range tests {
		pkg, _, _ := strings.Cut(t, " ")
		nth[t] = seen[pkg]
		seen[pkg]++
	}
	slices.SortStableFunc(tests, func(a, b string) int { return cmp.Or(cmp.Compare(nth[a], nth[b]), exampleLast(a, b)) })
	return tests
}

// list names the first tests, and counts the others.
func list(tests []string, limit int) string {
	var shown []string
	for _, t := range tests[:min(limit, len(tests))] {
		shown = append(shown, "`"+cell(t)+"`")
	}
	text := strings.Join(shown, ", ")
	if more := len(tests) - limit; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// cell keeps text from ending its table cell.
func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }
