package archtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// A command is one line of a sh block, with the output shown below it.
type command struct {
	line string
	want []string
}

// commandsOf reads a sh block: lines that begin with "$ " are commands, and the lines
// below each are its output. If nothing is shown below a command, its output doesn't
// matter.
func commandsOf(b block) ([]command, error) {
	var commands []command
	for _, line := range b.lines {
		if c, ok := strings.CutPrefix(line, "$ "); ok {
			commands = append(commands, command{line: c})
		} else if len(commands) == 0 {
			return nil, fmt.Errorf("%s: the block must begin with a command: $ and a space", b)
		} else {
			last := &commands[len(commands)-1]
			last.want = append(last.want, line)
		}
	}
	if len(commands) == 0 {
		return nil, fmt.Errorf("%s: the block has no command", b)
	}
	return commands, nil
}

// matches reports whether the lines are the wanted ones. A wanted line "..." stands for
// any number of lines.
func matches(want, got []string) bool {
	if len(want) == 0 {
		return len(got) == 0
	}
	if strings.TrimSpace(want[0]) == "..." {
		return matches(want[1:], got) || len(got) > 0 && matches(want, got[1:])
	}
	return len(got) > 0 && want[0] == got[0] && matches(want[1:], got[1:])
}

// inDocument is set for the commands of documents, so that a command which runs these
// tests is refused instead of recursing for ever.
const inDocument = "SEMEL_ARCHTEST_IN_DOCUMENT"

// runCommand runs a command in dir by sh, and compares its standard output. A command
// that fails is a fault.
func runCommand(ctx context.Context, dir string, c command) error {
	cmd := exec.CommandContext(ctx, "sh", "-c", c.line)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), inDocument+"=1")
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("$ %s: %w\n%s%s", c.line, err, stdout.String(), stderr.String())
	}
	var got []string
	for line := range strings.Lines(stdout.String()) {
		got = append(got, strings.TrimRight(line, " \t\r\n"))
	}
	if len(c.want) > 0 && !matches(c.want, got) {
		return fmt.Errorf("$ %s printed\n%s\ndocument:\n%s", c.line, strings.Join(got, "\n"), strings.Join(c.want, "\n"))
	}
	return nil
}

// shellNoteFault checks that a sh block says whether it is run or why not. A test of the
// command line runs the walks against a service, and starts what a tutorial starts.
func shellNoteFault(b block) error {
	reason, norun := strings.CutPrefix(b.note, "norun:")
	inTutorial := strings.HasPrefix(b.document, "docs/tutorial-") && (b.note == "start" || strings.HasPrefix(b.note, "write: "))
	if b.note == "run" || b.note == "walk" || inTutorial || norun && strings.TrimSpace(reason) != "" {
		return nil
	}
	return fmt.Errorf("%s: a sh block needs <!-- run -->, <!-- walk --> or <!-- norun: reason --> in the line before", b)
}

func TestCommands(t *testing.T) {
	if os.Getenv(inDocument) != "" {
		t.Fatal("a command in a document runs the test that runs it: mark its block norun")
	}
	files := treeFiles(t)
	t.Run("shell blocks are written as sh", func(t *testing.T) {
		for _, lang := range []string{"bash", "shell", "console", "zsh"} {
			for _, b := range blocks(t, files, lang) {
				t.Errorf("%s: write %s as sh", b, lang)
			}
		}
	})
	var toRun []block
	t.Run("each sh block says whether it is run", func(t *testing.T) {
		for _, b := range blocks(t, files, "sh") {
			if err := shellNoteFault(b); err != nil {
				t.Error(err)
			} else if b.note == "run" {
				toRun = append(toRun, b)
			}
		}
	})
	t.Run("commands print what the documents say", func(t *testing.T) {
		if testing.Short() {
			t.Skip("commands of documents are not run with -short")
		}
		for _, b := range toRun {
			commands, err := commandsOf(b)
			if err != nil {
				t.Error(err)
			}
			for _, c := range commands {
				if err := runCommand(t.Context(), root, c); err != nil {
					t.Errorf("%s: %v", b, err)
				}
			}
		}
	})
}

func TestCommandRulesFind(t *testing.T) {
	sh := func(note string, lines ...string) block {
		return block{document: "a.md", line: 1, lang: "sh", note: note, lines: lines}
	}
	t.Run("a block that does not say whether it is run", func(t *testing.T) {
		for note, ok := range map[string]bool{"run": true, "norun: needs a server": true, "norun:": false, "": false, "running": false} {
			if err := shellNoteFault(sh(note)); (err == nil) != ok {
				t.Errorf("note %q: fault = %v", note, err)
			}
		}
	})
	t.Run("a block without a command", func(t *testing.T) {
		for _, b := range []block{sh("run"), sh("run", "make test")} {
			if commands, err := commandsOf(b); err == nil {
				t.Errorf("%q: commands = %v", b.lines, commands)
			}
		}
	})
	t.Run("a command that does not do what is shown", func(t *testing.T) {
		for _, test := range []struct {
			lines []string
			ok    bool
		}{
			{[]string{"$ echo a; echo b", "a", "b"}, true},
			{[]string{"$ echo a; echo b"}, true},
			{[]string{"$ echo a", "b"}, false},
			{[]string{"$ echo a; echo b", "a"}, false},
			{[]string{"$ echo a", "a", "b"}, false},
			{[]string{"$ echo a; echo b; echo c", "...", "c"}, true},
			{[]string{"$ echo a; echo b; echo c", "a", "...", "c"}, true},
			{[]string{"$ echo a; echo c", "a", "...", "c", "..."}, true},
			{[]string{"$ echo a; echo b", "...", "a"}, false},
			{[]string{"$ exit 3"}, false},
			{[]string{"$ true", "$ false"}, false},
		} {
			commands, err := commandsOf(sh("run", test.lines...))
			if err != nil {
				t.Fatal(err)
			}
			var faults []error
			for _, c := range commands {
				faults = append(faults, runCommand(t.Context(), t.TempDir(), c))
			}
			if err := errors.Join(faults...); (err == nil) != test.ok {
				t.Errorf("%q: fault = %v", test.lines, err)
			}
		}
	})
	t.Run("commands keep their order", func(t *testing.T) {
		commands, err := commandsOf(sh("run", "$ a", "x", "$ b"))
		if err != nil || len(commands) != 2 || commands[0].line != "a" || !slices.Equal(commands[0].want, []string{"x"}) || commands[1].line != "b" {
			t.Fatalf("commands = %v, %v", commands, err)
		}
	})
}
