package docs

import (
	"cmp"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/semelhq/semel/docs"
)

// A Page is one page of the documentation.
type Page struct {
	Name  string `json:"name"` // such as mcp, or adr/0001-store-contract
	Title string `json:"title"`
	// Kind is the heading of the first page that lists this one, and About its words there. Both
	// are empty for a page that only another one lists.
	Kind  string `json:"kind,omitempty"`
	About string `json:"about,omitempty"`
	// For says whom the page is for, and Afterwards what its readers can do then.
	For        string `json:"for,omitempty"`
	Afterwards string `json:"afterwards,omitempty"`
	Text       string `json:"text,omitempty"` // in Markdown

	file string // in the source
}

// A Kind is a group of pages that answer one kind of question: a tutorial, a guide.
type Kind struct {
	Title string
	Pages []*Page
}

// A Book is the whole documentation, in the order of its first page.
type Book struct {
	Pages []*Page // the first one lists the others
	Kinds []Kind

	files fs.FS
	names map[string]*Page
	index func() *Index
}

// Ours is the documentation of this build.
var Ours = sync.OnceValue(func() *Book {
	b, err := Open(docs.Files)
	if err != nil {
		panic(err) // the files are part of the program
	}
	return b
})

var (
	titleLine = regexp.MustCompile(`(?m)^# (.+)$`)
	forLine   = regexp.MustCompile(`(?m)^- \*\*For\*\* (.+)$`)
	afterLine = regexp.MustCompile(`(?m)^- \*\*Afterwards\*\* (.+)$`)
	kindLine  = regexp.MustCompile(`^## (.+)$`)
	pageLine  = regexp.MustCompile(`^- \[[^]]+\]\(([^)#:]+\.md)\):? *(.*)$`)
)

// Open reads the pages of a directory.
func Open(files fs.FS) (*Book, error) {
	b := &Book{files: files, names: map[string]*Page{}}
	err := fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || path.Ext(name) != ".md" {
			return err
		}
		text, err := fs.ReadFile(files, name)
		if err == nil {
			b.add(name, string(text))
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if b.names["index"] == nil {
		return nil, fs.ErrNotExist
	}
	b.sort()
	b.index = sync.OnceValue(b.newIndex)
	return b, nil
}

func (b *Book) add(file, text string) {
	p := &Page{Name: nameOf(file), Text: text, file: file}
	for pattern, value := range map[*regexp.Regexp]*string{titleLine: &p.Title, forLine: &p.For, afterLine: &p.Afterwards} {
		if m := pattern.FindStringSubmatch(text); m != nil {
			*value = plain(m[1])
		}
	}
	b.Pages = append(b.Pages, p)
	b.names[p.Name] = p
}

// nameOf is the name of the page in a file: a README is the index of its directory.
func nameOf(file string) string {
	return path.Join(path.Dir(file), strings.Replace(strings.TrimSuffix(path.Base(file), ".md"), "README", "index", 1))
}

// sort puts the pages into the order of the first one, and pages that it doesn't list behind them.
func (b *Book) sort() {
	rank := map[*Page]int{b.names["index"]: -1}
	for line := range strings.Lines(b.names["index"].Text) {
		line = strings.TrimSuffix(line, "\n")
		if m := kindLine.FindStringSubmatch(line); m != nil {
			b.Kinds = append(b.Kinds, Kind{Title: m[1]})
		}
		m := pageLine.FindStringSubmatch(line)
		if m == nil || len(b.Kinds) == 0 {
			continue
		}
		if p := b.names[nameOf(m[1])]; p != nil && p.Kind == "" {
			kind := &b.Kinds[len(b.Kinds)-1]
			p.Kind, p.About, rank[p] = kind.Title, plain(m[2]), len(rank)
			kind.Pages = append(kind.Pages, p)
		}
	}
	b.Kinds = slices.DeleteFunc(b.Kinds, func(k Kind) bool { return len(k.Pages) == 0 })
	rankOf := func(p *Page) int {
		if n, listed := rank[p]; listed {
			return n
		}
		return len(b.Pages)
	}
	slices.SortStableFunc(b.Pages, func(p, q *Page) int { return cmp.Compare(rankOf(p), rankOf(q)) })
}

// Page finds a page by its name, however it is written: mcp, mcp.md, docs/mcp.md, mcp.html.
func (b *Book) Page(name string) *Page {
	name, _, _ = strings.Cut(strings.TrimPrefix(name, "docs/"), "#")
	name = strings.TrimSuffix(strings.TrimSuffix(name, ".html"), ".md")
	for _, name := range []string{name, nameOf(name + ".md"), name + "/index"} {
		if p := b.names[name]; p != nil {
			return p
		}
	}
	return nil
}

var (
	linkText = regexp.MustCompile(`\[([^]]*)\]\([^)]*\)`)
	marks    = strings.NewReplacer("**", "", "`", "")
)

// plain is a line of Markdown without its marks.
func plain(line string) string {
	return strings.TrimSpace(marks.Replace(linkText.ReplaceAllString(line, "$1")))
}
