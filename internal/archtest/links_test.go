package archtest

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// maxReadmeWords is about what a reader takes in before deciding whether to go on; pages of
// docs have the rest.
const maxReadmeWords = 900

var (
	link    = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ +(.+)$`)
	named   = regexp.MustCompile(`<a id="([^"]+)">`)
	gone    = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// anchorsOf returns the fragments that a document's headings and anchors have.
func anchorsOf(text string) map[string]bool {
	found := make(map[string]bool)
	for _, m := range named.FindAllStringSubmatch(text, -1) {
		found[m[1]] = true
	}
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		found[strings.ReplaceAll(gone.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")] = true
	}
	return found
}

// linkFaults finds links of a document to files, folders and headings that aren't there.
func linkFaults(name string, files map[string]string) []string {
	var faults []string
	for _, m := range link.FindAllStringSubmatch(files[name], -1) {
		if strings.Contains(m[1], ":") {
			continue
		}
		file, fragment, _ := strings.Cut(m[1], "#")
		target := name
		if file != "" {
			target = path.Join(path.Dir(name), file)
		}
		text, ok := files[target]
		if !ok && target != "." && !slices.ContainsFunc(slices.Collect(maps.Keys(files)), func(f string) bool { return strings.HasPrefix(f, target+"/") }) {
			faults = append(faults, fmt.Sprintf("%s links to %s, which isn't there", name, m[1]))
		} else if fragment != "" && !anchorsOf(text)[fragment] {
			faults = append(faults, fmt.Sprintf("%s links to %s, which has no such heading", name, m[1]))
		}
	}
	return faults
}

func TestLinks(t *testing.T) {
	files := treeFiles(t)
	for _, name := range append(slices.Sorted(maps.Keys(documents(files))), "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md") {
		report(t, linkFaults(name, files))
	}
	t.Run("docs/README.md lists each page", func(t *testing.T) {
		for name := range documents(files) {
			if page, ok := strings.CutPrefix(name, "docs/"); ok && page != "README.md" && !strings.Contains(page, "/") &&
				!strings.Contains(files["docs/README.md"], "]("+page+")") {
				t.Errorf("docs/README.md lacks %s", page)
			}
		}
	})
	t.Run("the README is one screen", func(t *testing.T) {
		if n := len(strings.Fields(files["README.md"])); n > maxReadmeWords {
			t.Errorf("README.md has %d words, more than %d: move something to its page", n, maxReadmeWords)
		}
	})
}

func TestLinkRuleFinds(t *testing.T) {
	files := map[string]string{
		"docs/a.md": "[1](b.md) [2](b.md#one--two-x) [3](b.md#far) [4](../cmd) [5](c.md) [6](#here) [7](https://x.y/z#q) [8](..)",
		"docs/b.md": "## One – two `x`\n", "cmd/main.go": "",
	}
	wantFaults(t, linkFaults("docs/a.md", files), "b.md#far, which has no such heading", "c.md, which isn't there", "#here, which has no such heading")
}
