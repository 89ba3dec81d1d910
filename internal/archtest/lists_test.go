package archtest

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/semelhq/semel"
)

// A list says again, outside of the code that declares it, which decisions, doors, principals
// or senders there are.
type list struct {
	file string
	// part finds the text of the list, as its one group, and word each of its words.
	part, word *regexp.Regexp
	want       []string
}

// fault compares the list with what it has to have. The order is free.
func (l *list) fault(text string) error {
	part := l.part.FindStringSubmatch(text)
	if part == nil {
		return fmt.Errorf("%s has no list that matches %s", l.file, l.part)
	}
	var got []string
	for _, m := range l.word.FindAllStringSubmatch(part[1], -1) {
		got = append(got, m[1])
	}
	var errs []error
	for _, w := range l.want {
		if !slices.Contains(got, w) {
			errs = append(errs, fmt.Errorf("%s lacks %s", l.file, w))
		}
	}
	for i, w := range got {
		if !slices.Contains(l.want, w) || slices.Contains(got[:i], w) {
			errs = append(errs, fmt.Errorf("%s has %s, which isn't declared, or twice", l.file, w))
		}
	}
	return errors.Join(errs...)
}

var (
	quoted   = regexp.MustCompile("[\"`](\\w+)[\"`]")
	plain    = regexp.MustCompile(`(\w+)`)
	nameOf   = regexp.MustCompile(`(?m)^const Name = "(\w+)"`)
	ownNames = regexp.MustCompile(`(?m)^const Principal = "(\w+)"`)
)

// declared are the values of a constant that files below door, and those of the execution API,
// declare, and the values of those that import door/inbox.
func declared(files map[string]string, constant *regexp.Regexp) (all, inboxes []string) {
	behind := map[string]bool{}
	for name, text := range files {
		if strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") && strings.Contains(text, `"`+modulePath+`/door/inbox"`) {
			behind[path.Dir(name)] = true
		}
	}
	for name, text := range files {
		if !strings.HasPrefix(name, "door/") && path.Dir(name) != "internal/service/api" {
			continue
		}
		if m := constant.FindStringSubmatch(text); m != nil {
			all = append(all, m[1])
			if behind[path.Dir(name)] {
				inboxes = append(inboxes, m[1])
			}
		}
	}
	slices.Sort(all)
	return all, inboxes
}

// lists are all lists of words that nothing generates.
func lists(files map[string]string) []list {
	var decisions []string
	for _, d := range semel.Decisions() {
		decisions = append(decisions, string(d))
	}
	// The log has the specification's words for the new call, the duplicate and the conflict.
	logged := append([]string{"first_seen", "duplicate_replayed", "conflict_rejected"},
		slices.DeleteFunc(slices.Clone(decisions), func(d string) bool { return d == "replay" || d == "conflict" })...)
	doors, inboxes := declared(files, nameOf)
	principals, _ := declared(files, ownNames)
	var sources []string
	for name := range files {
		if source, ok := strings.CutPrefix(name, "door/webhook/sources/"); ok && source != "standard-webhooks-ed25519.yaml" { // in the row of its sibling
			sources = append(sources, strings.TrimSuffix(source, ".yaml"))
		}
	}
	return []list{
		{"doc.go", regexp.MustCompile(`(?s)A \[Decision\] is what a delivery got:(.*?)\.\n`), plain, append(slices.Clone(decisions), "or")},
		{"docs/glossary.md", regexp.MustCompile(`(?s)\n## Decisions\n(.*?)\n\n[A-Z#]`), regexp.MustCompile("(?m)^\\| `(\\w+)` \\|"), decisions},
		{"evidence/artifact.schema.json", regexp.MustCompile(`"decision": \{"enum": \[(.*?)\]\}`), quoted, logged},
		{"service/dashboard/web/js/words.js", regexp.MustCompile(`(?s)export const decisions = \{(.*?)\n\};`), regexp.MustCompile(`(?m)^\t(\w+): \{ label`), decisions},
		{"internal/wire/event.go", regexp.MustCompile("`json:\"decision\" enum:\"([^\"]*)\"`"), plain, decisions},
		{"internal/service/metrics/table.go", regexp.MustCompile(`(?m)^\t"decision": +(".*)$`), regexp.MustCompile("`(\\w+)`"), decisions},
		{"internal/service/metrics/table.go", regexp.MustCompile(`"door": +"the door: (.*?), or the name`), quoted, doors},
		{"docs/traces.md", regexp.MustCompile("\\| `door` \\| by which door the delivery came: (.*?);"), quoted, slices.DeleteFunc(slices.Clone(doors), func(d string) bool { return d == "proxy" })},
		{"docs/webhooks.md", regexp.MustCompile(`(?s)\n## Sources\n(.*?\n\| source .*?)\n\n`), regexp.MustCompile("(?m)^\\| `([\\w-]+)`"), sources},
		{"internal/service/auth/auth.go", regexp.MustCompile(`ownPrincipals = \[\]string\{"semel", "local", (.*?)\}`), quoted, principals},
		{"service/tracing/tracing.go", regexp.MustCompile(`consumers = map\[string\]bool\{(.*?)\}`), quoted, inboxes},
	}
}

func TestListsAreComplete(t *testing.T) {
	files := treeFiles(t)
	for _, l := range lists(files) {
		if len(l.want) < 3 {
			t.Errorf("%s: only %v is declared", l.file, l.want)
		}
		if err := l.fault(files[l.file]); err != nil {
			t.Error(err)
		}
	}
}

// TestEveryRefusalIsAnError: a decision that [semel.Answer.Err] doesn't know would pass for
// an outcome.
func TestEveryRefusalIsAnError(t *testing.T) {
	for _, d := range semel.Decisions() {
		code, refused := d.Code()
		err := (&semel.Answer{Decision: d, Record: &semel.Record{}}).Err()
		if refused && !errors.Is(err, &semel.Error{Code: code}) {
			t.Errorf("the answer %s has the error %v", d, err)
		}
	}
}

func TestListRuleFinds(t *testing.T) {
	l := list{"a.md", regexp.MustCompile(`words: (.*)\.`), quoted, []string{"one", "two"}}
	for text, want := range map[string][]string{
		"words: `two`, `one`.":              nil,
		"words: `one`.":                     {"a.md lacks two"},
		"words: `one`, `two`, `x`.":         {"a.md has x"},
		"words: `one`, `two`, `one`.":       {"a.md has one"},
		"no such list":                      {"a.md has no list"},
		"words: `one`, `six`. words: `two`": {"a.md lacks two", "a.md has six"},
	} {
		var faults []string
		if err := l.fault(text); err != nil {
			faults = strings.Split(err.Error(), "\n")
		}
		wantFaults(t, faults, want...)
	}
	all, inboxes := declared(map[string]string{
		"door/a/a.go": "package a\n\nconst Name = \"a\"\n", "door/a/b.go": `import "` + modulePath + `/door/inbox"`,
		"door/b/b.go": "package b\n\nconst Name = \"b\"\n", "client/c.go": "package c\n\nconst Name = \"c\"\n",
	}, nameOf)
	if !slices.Equal(all, []string{"a", "b"}) || !slices.Equal(inboxes, []string{"a"}) {
		t.Errorf("found the doors %v, and %v with an inbox", all, inboxes)
	}
}
