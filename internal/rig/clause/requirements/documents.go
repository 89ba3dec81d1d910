package main

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/semelhq/semel/internal/rig/clause"
)

// documentsDir has a page for each of the specifications, and one about all of them.
const documentsDir = "docs/documents"

// heads are the parts of these pages that people write: what Semel does otherwise than the
// document says. README.md is about where the documents contradict each other.
//
//go:embed documents/*.md
var heads embed.FS

// seeTSV has, for a clause, a command by which a reader sees it at work. A clause without one has
// the command that runs a test of it.
//
//go:embed see.tsv
var seeTSV string

// declinedTSV has the clauses that Semel doesn't follow, each of them a MAY, and why.
//
//go:embed declined.tsv
var declinedTSV string

// notes reads a table of ours: a heading, then a clause and a text per line.
func notes(tsv, column string) (map[string]string, error) {
	lines := strings.Split(strings.TrimSuffix(tsv, "\n"), "\n")
	if lines[0] != "id\t"+column {
		return nil, fmt.Errorf("the heading is %q, want id and %s", lines[0], column)
	}
	found := map[string]string{}
	for _, line := range lines[1:] {
		id, text, _ := strings.Cut(line, "\t")
		if c, ok := clause.Lookup(id); !ok || c.Source == "guarantees" || text == "" || found[id] != "" {
			return nil, fmt.Errorf("%q: an unknown clause, no %s, or a second one", line, column)
		}
		found[id] = text
	}
	return found, nil
}

// declinedClauses are the clauses that Semel doesn't follow, with the reason. The error names one
// that it has to follow, or that a test proves.
func declinedClauses(records []clause.Record) (map[string]string, error) {
	declined, err := notes(declinedTSV, "why")
	if err != nil {
		return nil, fmt.Errorf("declined.tsv: %w", err)
	}
	for id := range declined {
		if c, _ := clause.Lookup(id); c.Level != "MAY" {
			return nil, fmt.Errorf("declined.tsv: %s is a %s", id, c.Level)
		}
		if slices.ContainsFunc(records, func(r clause.Record) bool { return r.Clause == id }) {
			return nil, fmt.Errorf("declined.tsv: %s is declined, and a test proves it", id)
		}
	}
	return declined, nil
}

// sources are the specifications, in the order of their clauses.
func sources() (names []string) {
	for _, c := range clause.All() {
		if !slices.Contains(names, c.Source) {
			names = append(names, c.Source)
		}
	}
	return names
}

// renderDocuments writes a page for each specification, by its name in docs/documents, and the
// one about all of them.
func renderDocuments(p *findings) (map[string]string, error) {
	see, err := notes(seeTSV, "see")
	if err != nil {
		return nil, fmt.Errorf("see.tsv: %w", err)
	}
	pages := map[string]string{}
	for _, name := range append(sources(), "README") {
		head, err := heads.ReadFile("documents/" + name + ".md")
		if err != nil {
			return nil, err
		}
		title, rest, _ := strings.Cut(string(head), "\n")
		text := title + "\n\n<!-- Written by internal/rig/clause/requirements from its documents/" + name + ".md. Run make generate after a change. -->\n" + rest
		if name != "README" {
			text += rowsOf(p, name, see)
		}
		pages[path.Join(documentsDir, name+".md")] = text
	}
	return pages, nil
}

// rowsOf is the table of a specification: each clause, how to see it, and its tests.
func rowsOf(p *findings, source string, see map[string]string) string {
	var b strings.Builder
	b.WriteString("\n## Sentence by sentence\n\nRun the commands of tests in the root of the repository. Words in capitals are yours.\n\n| clause | level | sentence | how to see it | proved by |\n|---|---|---|---|---|\n")
	for _, c := range clause.All() {
		if c.Source != source {
			continue
		}
		var commands []string
		for _, r := range p.records[c.ID] {
			commands = append(commands, commandOf(p.module, r))
		}
		slices.SortFunc(commands, func(a, b string) int { return cmp.Or(exampleLast(a, b), cmp.Compare(a, b)) })
		command := see[c.ID]
		if command == "" && len(commands) > 0 {
			command = commands[0]
		}
		if command != "" {
			command = "`" + cell(command) + "`"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", c.ID, c.Level, cell(c.Text), cmp.Or(command, "–"), p.by(c.ID))
	}
	return b.String()
}

// commandOf runs one test of a run again, with all of its subtests.
func commandOf(module string, r clause.Record) string {
	test, _, _ := strings.Cut(r.Test, "/")
	pkg := "."
	if r.Package != module {
		pkg = "./" + strings.TrimPrefix(r.Package, module+"/")
	}
	return fmt.Sprintf("go test -run '^%s$' %s", test, pkg)
}

// exampleLast sorts examples behind everything else.
func exampleLast(a, b string) int {
	is := func(s string) int {
		if strings.Contains(s, "examples/") {
			return 1
		}
		return 0
	}
	return cmp.Compare(is(a), is(b))
}

// putAll writes or checks pages.
func putAll(root string, pages map[string]string, check bool) error {
	var errs []error
	for page, text := range pages {
		errs = append(errs, put(root, page, text, check))
	}
	return errors.Join(errs...)
}
