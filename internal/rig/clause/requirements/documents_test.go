package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/semelhq/semel/internal/rig/clause"
)

func TestRenderDocuments(t *testing.T) {
	clause.Proves(t, "CORE-DOC.1")
	records := []clause.Record{
		record("VUL-03-001", module+"/examples/x", "TestX", "f.go", 1),
		record("VUL-03-001", module+"/door/y", "TestY/at once", "f.go", 1),
		record("CORE-INV.3", module, "TestRoot", "f.go", 1),
	}
	p, err := findingsOf(module, records, clause.Faults())
	if err != nil {
		t.Fatal(err)
	}
	pages, err := renderDocuments(p)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("each specification has a page with its differences and all of its clauses", func(t *testing.T) {
		for _, c := range clause.All() {
			page := pages["docs/documents/"+c.Source+".md"]
			differs, rows := strings.Index(page, "## Where Semel differs"), strings.Index(page, "## Sentence by sentence")
			if differs < 0 || rows < differs || strings.Count(page[max(rows, 0):], "\n| "+c.ID+" | "+c.Level+" | "+cell(c.Text)+" |") != 1 {
				t.Errorf("%s has no place on the page of %s", c.ID, c.Source)
			}
		}
	})
	t.Run("one page has the contradictions, and names all others", func(t *testing.T) {
		page := pages["docs/documents/README.md"]
		for _, source := range sources() {
			if !strings.Contains(page, "]("+source+".md)") {
				t.Errorf("%s isn't named", source)
			}
		}
		if !strings.Contains(page, "## Where they contradict each other") {
			t.Error("it has no contradictions")
		}
	})
	for what, row := range map[string]string{
		"the command of a test is one outside of examples": "| `go test -run '^TestY$' ./door/y` | `door/y TestY/at once`, `examples/x TestX` |\n",
		"a package in the root":                            "| `go test -run '^TestRoot$' .` | `m TestRoot` |\n",
		"a command of ours comes first":                    "| `semel why ACTIVITY_ID` | not yet proved |\n",
		"neither":                                          "| – | not yet proved |\n",
		"declined":                                         "| – | declined: an answer without a look",
	} {
		if !slices.ContainsFunc(sources(), func(s string) bool { return strings.Contains(pages["docs/documents/"+s+".md"], row) }) {
			t.Errorf("%s: no page has %q", what, row)
		}
	}
}

func TestDeclined(t *testing.T) {
	if _, err := declinedClauses([]clause.Record{record("VUL-05-002", module, "TestA", "f.go", 1)}); err == nil || !strings.Contains(err.Error(), "a test proves it") {
		t.Errorf("a declined clause with a proof: %v", err)
	}
	for _, tsv := range []string{"clause\twhy\n", "id\twhy\nVUL-00-000\tx\n", "id\twhy\nVUL-05-002\t\n", "id\twhy\nVUL-05-002\tx\nVUL-05-002\ty\n"} {
		if _, err := notes(tsv, "why"); err == nil {
			t.Errorf("%q is accepted", tsv)
		}
	}
}

// TestCommandsToSee: a command of semel is one that it has.
func TestCommandsToSee(t *testing.T) {
	see, err := notes(seeTSV, "see")
	if err != nil {
		t.Fatal(err)
	}
	for id, command := range see {
		words := strings.Fields(command)
		switch words[0] {
		case "curl", "psql":
		case "python3":
			if _, err := os.Stat(filepath.Join("../../../..", words[1])); err != nil {
				t.Errorf("%s: %v", id, err)
			}
		case "semel":
			known := "semel"
			for _, word := range words[1:] {
				if _, err := os.Stat("../../../../cmd/semel/internal/cli/testdata/help/" + known + "-" + word + ".txt"); err != nil {
					break
				}
				known += "-" + word
			}
			help, err := os.ReadFile("../../../../cmd/semel/internal/cli/testdata/help/" + known + ".txt")
			if err != nil || known == "semel" {
				t.Errorf("%s: there is no %q", id, command)
			}
			for _, word := range words {
				if flag, _, _ := strings.Cut(word, "="); strings.HasPrefix(flag, "--") && !strings.Contains(string(help), flag+" ") {
					t.Errorf("%s: %q has no flag %s", id, command, flag)
				}
			}
		default:
			t.Errorf("%s: %q isn't a command of a reader", id, command)
		}
	}
}
