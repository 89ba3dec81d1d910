package a2a_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	once "github.com/semelhq/semel/door/a2a"
	"github.com/semelhq/semel/internal/rig/clause"
)

// TestStates: the table of docs/a2a.md is the one that the door uses.
func TestStates(t *testing.T) {
	clause.Proves(t, "MAP-A2A.1")
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "a2a.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "| A2A's state | state |\n")
	table, _, _ = strings.Cut(table, "\n\n")
	word := regexp.MustCompile("`([a-z_-]+)`")
	seen := map[string]bool{}
	for row := range strings.Lines(table) {
		words := word.FindAllStringSubmatch(row, -1)
		if len(words) == 0 {
			continue
		}
		want := once.State(words[len(words)-1][1])
		for _, w := range words[:len(words)-1] {
			name := w[1]
			seen[name] = true
			for _, spelling := range []string{name, "TASK_STATE_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))} {
				if got := once.StateOf(spelling); got != want {
					t.Errorf("%s is %s, and %s on the page", spelling, got, want)
				}
			}
		}
	}
	if len(seen) != 8 {
		t.Errorf("the page has %d states: %v", len(seen), seen)
	}
	for spelling, want := range map[string]once.State{
		"TASK_STATE_CANCELLED": once.Failed, "TASK_STATE_UNSPECIFIED": once.InProgress, "unknown": once.InProgress, "": once.InProgress, "later": once.InProgress,
	} {
		if got := once.StateOf(spelling); got != want {
			t.Errorf("%q is %s", spelling, got)
		}
	}
}
