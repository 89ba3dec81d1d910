package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/semelhq/semel/internal/rig/clause"
)

const (
	// storeTests is how many tests of each store a guarantee names, and otherTests how
	// many of other packages, before it only counts.
	storeTests = 2
	otherTests = 4
)

// unproved lists the promises of p that no passing test of the run proves.
func unproved(module string, p clause.Promises, records []clause.Record) error {
	var faults []string
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	for _, d := range p.Deployments {
		if len(proofs(module, d.Package, []string{d.ID}, records)) == 0 {
			fault("%s (%s): no test of %s that names it ran and passed", d.ID, d.Name, d.Package)
		}
	}
	known := map[string]bool{}
	for _, g := range p.Guarantees {
		known[g.ID] = true
		if len(proofs(module, "", ids(g), records)) == 0 {
			fault("%s (%s): no test that proves it ran and passed", g.ID, g.Title)
		}
		for id := range g.Except {
			if !slices.ContainsFunc(p.Deployments, func(d clause.Deployment) bool { return d.ID == id }) {
				fault("%s excepts %s, which is no deployment", g.ID, id)
			}
		}
		for _, d := range p.Deployments {
			if g.PerStore && g.Except[d.ID] != clause.No && len(proofs(module, d.Package, ids(g), records)) == 0 {
				fault("%s (%s): claimed on %s, but no test of %s that proves it ran and passed", g.ID, g.Title, d.Name, d.Package)
			}
		}
	}
	for _, m := range p.Modes {
		for _, id := range m.IDs {
			if !known[id] {
				fault("the mode %q rests on %s, which is no guarantee", m.Name, id)
			}
		}
	}
	if len(faults) == 0 {
		return nil
	}
	return errors.New("guarantees without a proof:\n  " + strings.Join(faults, "\n  "))
}

// ids are what a test may name to prove g.
func ids(g clause.Guarantee) []string { return append([]string{g.ID}, g.Clauses...) }

// proofs are the tests of a package, or of all, that prove one of the clauses.
func proofs(module, pkg string, ids []string, records []clause.Record) []string {
	found := map[string]bool{}
	for _, r := range records {
		if slices.Contains(ids, r.Clause) && (pkg == "" || r.Package == module+"/"+pkg) {
			found[testName(module, r)] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// renderGuarantees writes the page of guarantees. Like the page of requirements it depends only
// on the promises and on which tests passed.
func renderGuarantees(module string, p clause.Promises, records []clause.Record) string {
	var b strings.Builder
	b.WriteString(`# Guarantees

- **For** people who decide what to build on Semel.
- **Afterwards** you know what is promised on which store, under which conditions, and what nobody can promise.

<!-- Written by internal/rig/clause/requirements from internal/rig/clause/promises.go. Run make generate after a change of tests. -->

This page tells you what you can build on, on which store, and under which conditions. A promise is on it only if tests that prove it passed in the run that wrote the page, and a promise that rests on a store only if a test passed on that store. [Requirements](requirements.md) has all of these tests, clause by clause.

## What nobody can promise

`)
	for _, n := range p.Never {
		fmt.Fprintf(&b, "- %s\n", n)
	}
	b.WriteString(`
## Where your records live

Semel reads the level from the store's live settings; see [stores](stores.md).

| deployment | URL | level | an acknowledged record survives | it is lost with | proved by |
|---|---|---|---|---|---|
`)
	for _, d := range p.Deployments {
		fmt.Fprintf(&b, "| %s | %s | `%s` | %s | %s | %s |\n", d.Name, d.URL, d.Level, d.Survives, d.LostWith,
			list(proofs(module, d.Package, []string{d.ID}, records), storeTests))
	}
	b.WriteString("\n## What you get by how you use it\n\n| you use | you get | you don't get | you need | see |\n|---|---|---|---|---|\n")
	for _, m := range p.Modes {
		var see []string
		for _, id := range m.IDs {
			i := slices.IndexFunc(p.Guarantees, func(g clause.Guarantee) bool { return g.ID == id })
			see = append(see, link(p.Guarantees[i]))
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", m.Name, m.Gives, m.Lacks, m.Needs, strings.Join(see, ", "))
	}
	b.WriteString("\n## Which guarantee holds where\n\n| guarantee |")
	for _, d := range p.Deployments {
		fmt.Fprintf(&b, " %s |", d.Name)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(p.Deployments)) + "\n")
	for _, g := range p.Guarantees {
		fmt.Fprintf(&b, "| %s |", link(g))
		for _, d := range p.Deployments {
			fmt.Fprintf(&b, " %s |", cmp.Or(g.Except[d.ID], "yes"))
		}
		b.WriteString("\n")
	}
	b.WriteString("\n## The guarantees\n")
	for _, g := range p.Guarantees {
		fmt.Fprintf(&b, "\n<a id=%q></a>\n\n### %s\n\n%s\n\n- **Condition:** %s\n- **Not covered:** %s\n- **Proved by:** %s\n",
			anchor(g), g.Title, g.Text, g.If, g.Not, provedOn(module, p, g, records))
	}
	return b.String()
}

// provedOn lists the tests that prove g, first the stores' own.
func provedOn(module string, p clause.Promises, g clause.Guarantee, records []clause.Record) string {
	var parts, shown []string
	for _, d := range p.Deployments {
		if slices.Contains(shown, d.Package) || g.Except[d.ID] == clause.No {
			continue
		}
		if tests := proofs(module, d.Package, ids(g), records); len(tests) > 0 {
			shown, parts = append(shown, d.Package), append(parts, list(tests, storeTests))
		}
	}
	others := slices.DeleteFunc(proofs(module, "", ids(g), records), func(test string) bool {
		pkg, _, _ := strings.Cut(test, " ")
		return slices.Contains(shown, pkg)
	})
	if len(others) > 0 {
		parts = append(parts, list(others, otherTests))
	}
	if len(g.Clauses) > 0 {
		parts = append(parts, "clauses "+strings.Join(g.Clauses, ", "))
	}
	return strings.Join(parts, "; ")
}

func anchor(g clause.Guarantee) string { return strings.ToLower(g.ID) }

func link(g clause.Guarantee) string { return fmt.Sprintf("[%s](#%s)", g.Title, anchor(g)) }
