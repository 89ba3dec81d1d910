package archtest

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A block is a fenced block of a Markdown document.
type block struct {
	document string
	line     int    // of the opening fence
	lang     string // first word after the fence
	note     string // text of the HTML comment in the line before, if there is one
	lines    []string
}

func (b block) String() string { return fmt.Sprintf("%s:%d", b.document, b.line) }

var (
	fence = regexp.MustCompile("^\\s*(```+|~~~+)\\s*([\\w-]*)")
	note  = regexp.MustCompile(`^\s*<!--\s*(.*?)\s*-->\s*$`)
)

// blocksOf returns the fenced blocks of a document.
func blocksOf(document, text string) []block {
	var blocks []block
	var open *block
	var mark, last string
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSuffix(line, "\n")
		m := fence.FindStringSubmatch(line)
		switch {
		case open != nil && m != nil && m[1] == mark && m[2] == "":
			blocks, open = append(blocks, *open), nil
		case open != nil:
			open.lines = append(open.lines, line)
		case m != nil:
			open, mark = &block{document: document, line: n, lang: m[2]}, m[1]
			if c := note.FindStringSubmatch(last); c != nil {
				open.note = c[1]
			}
		}
		if strings.TrimSpace(line) != "" {
			last = line
		}
	}
	return blocks
}

// regions returns the lines between "// snippet: Name" and "// end snippet"
// of a Go file, by name.
func regions(src string) (map[string][]string, error) {
	found := make(map[string][]string)
	name := ""
	for line := range strings.Lines(src) {
		line = strings.TrimSuffix(line, "\n")
		trimmed := strings.TrimSpace(line)
		begin, isBegin := strings.CutPrefix(trimmed, "// snippet: ")
		switch {
		case isBegin && name != "":
			return nil, fmt.Errorf("snippet %s begins inside %s", begin, name)
		case isBegin && found[begin] != nil:
			return nil, fmt.Errorf("two snippets are named %s", begin)
		case isBegin:
			name, found[begin] = begin, []string{}
		case trimmed == "// end snippet" && name == "":
			return nil, errors.New("a snippet ends that did not begin")
		case trimmed == "// end snippet":
			name = ""
		case name != "":
			found[name] = append(found[name], line)
		}
	}
	if name != "" {
		return nil, fmt.Errorf("snippet %s does not end", name)
	}
	return found, nil
}

// dedent removes the indentation that all lines share, and empty lines at
// both ends.
func dedent(lines []string) string {
	text := strings.Trim(strings.Join(lines, "\n"), "\n")
	indent, first := "", true
	for line := range strings.SplitSeq(text, "\n") {
		if strings.TrimSpace(line) == "" {
			continue
		}
		own := line[:len(line)-len(strings.TrimLeft(line, " \t"))]
		if first {
			indent, first = own, false
		}
		for !strings.HasPrefix(own, indent) {
			indent = indent[:len(indent)-1]
		}
	}
	var b strings.Builder
	for line := range strings.SplitSeq(text, "\n") {
		b.WriteString(strings.TrimRight(strings.TrimPrefix(line, indent), " \t") + "\n")
	}
	return b.String()
}

// snippetFault compares a block of Go with the region that its note names. goFiles are
// the files that go build or go test compiles, so that a snippet always compiles. The program of
// a tutorial is on its page only, and the test of the tutorials builds and runs it.
func snippetFault(b block, goFiles map[string]string) error {
	if strings.HasPrefix(b.document, "docs/tutorial-") && strings.HasPrefix(b.note, "write: ") {
		return nil
	}
	target, ok := strings.CutPrefix(b.note, "file: ")
	file, name, named := strings.Cut(target, "#")
	if !ok || !named {
		return fmt.Errorf("%s: a go block needs <!-- file: path/to/example_test.go#Name --> in the line before", b)
	}
	src, ok := goFiles[file]
	if !ok {
		return fmt.Errorf("%s: %s is no Go file of a package of this module", b, file)
	}
	found, err := regions(src)
	if err != nil {
		return fmt.Errorf("%s: %s: %w", b, file, err)
	}
	region, ok := found[name]
	if !ok {
		return fmt.Errorf("%s: %s has no snippet named %s", b, file, name)
	}
	if got, want := dedent(b.lines), dedent(region); got != want {
		return fmt.Errorf("%s: differs from snippet %s of %s; document:\n%ssource:\n%s", b, name, file, got, want)
	}
	return nil
}

// documents returns the README and everything below docs, by name.
func documents(files map[string]string) map[string]string {
	docs := maps.Clone(files)
	maps.DeleteFunc(docs, func(name, _ string) bool {
		return name != "README.md" && !(strings.HasPrefix(name, "docs/") && path.Ext(name) == ".md")
	})
	return docs
}

// blocks returns the blocks of all documents in one language.
func blocks(t *testing.T, files map[string]string, lang string) []block {
	t.Helper()
	docs := documents(files)
	var found []block
	for _, name := range slices.Sorted(maps.Keys(docs)) {
		for _, b := range blocksOf(name, docs[name]) {
			if b.lang == lang {
				found = append(found, b)
			}
		}
	}
	return found
}

// compiledFiles returns the Go files of the module's packages, with their
// tests, by slash-separated name, and those of the modules in contrib, whose
// tests scripts/test runs.
func compiledFiles(t *testing.T, files map[string]string) map[string]string {
	t.Helper()
	compiled := make(map[string]string)
	for _, p := range packages(t) {
		for _, name := range slices.Concat(p.GoFiles, p.TestGoFiles, p.XTestGoFiles) {
			name = path.Join(p.rel(), name)
			compiled[name] = files[name]
		}
	}
	for name, text := range files {
		if strings.HasPrefix(name, "contrib/") && path.Ext(name) == ".go" && !strings.Contains(text, "//go:build") {
			compiled[name] = text
		}
	}
	return compiled
}

func TestSnippets(t *testing.T) {
	files := treeFiles(t)
	goFiles := compiledFiles(t, files)
	for _, b := range blocks(t, files, "go") {
		if err := snippetFault(b, goFiles); err != nil {
			t.Error(err)
		}
	}
}

func TestBlocksOf(t *testing.T) {
	text := "# x\n\n<!-- run -->\n\n```sh\n$ a\n```\ntext\n````md extra\n```go\n````\n<!-- far -->\ntext\n  ```\n  b\n  ```\n"
	var got []string
	for _, b := range blocksOf("a.md", text) {
		got = append(got, fmt.Sprintf("%s %s %q %q", b, b.lang, b.note, b.lines))
	}
	want := []string{
		`a.md:5 sh "run" ["$ a"]`,
		"a.md:9 md \"\" [\"```go\"]",
		`a.md:14  "" ["  b"]`,
	}
	if !slices.Equal(got, want) {
		t.Fatalf("blocks = %q, want %q", got, want)
	}
}

func TestSnippetRuleFinds(t *testing.T) {
	goFiles := map[string]string{
		"a_test.go": "package a\n\nfunc f() {\n\t// snippet: F\n\tif x {\n\t\ty()\n\t}\n\t// end snippet\n}\n",
		"open.go":   "package a\n// snippet: F\n",
		"twice.go":  "// snippet: F\n// end snippet\n// snippet: F\n// end snippet\n",
	}
	for _, test := range []struct{ name, note, text, want string }{
		{"the region as it is", "file: a_test.go#F", "if x {\n\ty()\n}", ""},
		{"the region, indented differently", "file: a_test.go#F", "  if x {\n  \ty()\n  }", ""},
		{"another text", "file: a_test.go#F", "if x {\n\tz()\n}", "differs from snippet F"},
		{"a line more", "file: a_test.go#F", "if x {\n\ty()\n}\nz()", "differs from snippet F"},
		{"no note", "", "y()", "needs <!-- file:"},
		{"a note without a name", "file: a_test.go", "y()", "needs <!-- file:"},
		{"a file that is not compiled", "file: testdata/a.go#F", "y()", "is no Go file"},
		{"a name that is not there", "file: a_test.go#G", "y()", "no snippet named G"},
		{"a snippet that does not end", "file: open.go#F", "y()", "does not end"},
		{"two snippets of one name", "file: twice.go#F", "y()", "two snippets"},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := block{document: "a.md", line: 1, lang: "go", note: test.note, lines: strings.Split(test.text, "\n")}
			var faults []string
			if err := snippetFault(b, goFiles); err != nil {
				faults = append(faults, err.Error())
			}
			if test.want == "" {
				wantFaults(t, faults)
			} else {
				wantFaults(t, faults, test.want)
			}
		})
	}
}
