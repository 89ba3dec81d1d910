package cli

import (
	"cmp"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// codesPage lists what 'semel explain' explains.
func codesPage() string {
	var b strings.Builder
	b.WriteString("# Codes\n\n" +
		"- **For** people who read a short name such as `held`, `conflict` or `in_flight` in an answer or a log.\n" +
		"- **Afterwards** you know what it means, and what to do.\n\n" +
		"`semel explain CODE` says the same in a terminal, and `GET /problems/CODE` of a service for its own. This page is made from the source. Write it anew with `go test ./cmd/semel/internal/cli -run TestReference -update`.\n")
	for _, m := range explained() {
		status := ""
		if m.Status != 0 {
			status = ", status " + strconv.Itoa(m.Status)
		}
		fmt.Fprintf(&b, "\n## %s\n\n%s%s. %s\n\nWhat to do: %s\n", m.Code, m.Title, status, m.Meaning, m.HTTPAction())
	}
	return b.String()
}

// commandsPage has the help of all commands.
func commandsPage(t *testing.T) string {
	var b strings.Builder
	b.WriteString("# The program's commands\n\n" +
		"- **For** people who type `semel`, or write a script that does.\n" +
		"- **Afterwards** you know each command, its flags, its JSON and its exit codes.\n\n" +
		"`semel COMMAND --help` prints the same, and `semel man DIR` writes manual pages. This page is made from the source. Write it anew with `go test ./cmd/semel/internal/cli -run TestReference -update`.\n")
	var add func(cmd *cobra.Command)
	add = func(cmd *cobra.Command) {
		if cmd.Hidden || cmd.Name() == "completion" || cmd.Name() == "help" {
			return
		}
		path := strings.Fields(cmd.CommandPath())
		_, help, _ := semelWith(t, "", append(path[1:], "--help")...)
		fmt.Fprintf(&b, "\n## %s\n\n%s.\n\n```text\n%s```\n", cmd.CommandPath(), cmp.Or(cmd.Short, "The program"), strings.TrimRight(help, "\n")+"\n")
		for _, sub := range cmd.Commands() {
			add(sub)
		}
	}
	add(newRoot())
	return b.String()
}

// TestReference: the pages of reference that are made from the commands are current.
func TestReference(t *testing.T) {
	for name, want := range map[string]string{"codes.md": codesPage(), "commands.md": commandsPage(t)} {
		file := "../../../../docs/" + name
		if *update {
			if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if text, err := os.ReadFile(file); err != nil || string(text) != want {
			t.Errorf("docs/%s is not current (%v): run go test ./cmd/semel/internal/cli -run TestReference -update", name, err)
		}
	}
}

func TestDocs(t *testing.T) {
	t.Run("without words all pages are listed", func(t *testing.T) {
		code, out, _ := semelWith(t, "", "docs")
		if code != ExitOK || !strings.Contains(out, "Tutorials\n  tutorial-http") || !strings.Contains(out, "questions") {
			t.Errorf("exit %d: %s", code, out)
		}
	})
	t.Run("a page is shown by its name, in lines that fit", func(t *testing.T) {
		for _, name := range []string{"questions", "questions.md", "docs/questions.md"} {
			code, out, _ := semelWith(t, "", "docs", name)
			if code != ExitOK || !strings.HasPrefix(out, "# Questions, and the command that answers\n") || !strings.Contains(out, "    $ semel why 9911") || strings.Contains(out, "<!--") {
				t.Errorf("%s: exit %d: %.300s", name, code, out)
			}
			for line := range strings.Lines(out) {
				if !strings.HasPrefix(line, "    ") && len([]rune(line)) > docsWidth+1 && strings.Contains(strings.TrimSpace(line), " ") {
					t.Errorf("%s: a line of %d characters: %s", name, len([]rune(line)), line)
				}
			}
		}
	})
	for words, page := range map[string]string{"charged twice": "questions", "409": "handlers", "held": "terminal", "Kafka": "queues", "in_flight": "codes"} {
		t.Run(words+" finds "+page, func(t *testing.T) {
			code, out, _ := semelWith(t, "", append([]string{"docs"}, strings.Fields(words)...)...)
			if code != ExitOK || !strings.Contains("\n"+out, "\n"+page+" ") {
				t.Errorf("exit %d: %s", code, out)
			}
		})
	}
	t.Run("words that no page has", func(t *testing.T) {
		if code, _, errs := semelWith(t, "", "docs", "xyzzyx"); code != ExitNotFound || !strings.Contains(errs, "xyzzyx") {
			t.Errorf("exit %d: %s", code, errs)
		}
	})
	t.Run("a program gets JSON", func(t *testing.T) {
		_, list, _ := semelWith(t, "", "docs", "--json")
		_, page, _ := semelWith(t, "", "docs", "mcp", "--json")
		_, hits, _ := semelWith(t, "", "docs", "Kafka", "--json")
		if !strings.Contains(list, `"kind": "Tutorials"`) || strings.Contains(list, `"text"`) || !strings.Contains(page, `"text": "# MCP`) || !strings.Contains(hits, `"name": "queues"`) {
			t.Errorf("%.300s\n%.300s\n%.300s", list, page, hits)
		}
	})
}
