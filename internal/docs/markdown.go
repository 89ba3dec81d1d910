package docs

import (
	"bytes"
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer/html"
	"github.com/yuin/goldmark/text"
)

// markdown renders our own pages, with their HTML: anchors, and pictures of two themes.
var markdown = goldmark.New(goldmark.WithExtensions(extension.Table), goldmark.WithParserOptions(parser.WithAutoHeadingID()), goldmark.WithRendererOptions(html.WithUnsafe()))

// repository is where links lead that leave the documentation.
const repository = "https://github.com/semelhq/semel/tree/main/"

// url is the page's place in the documentation, as seen from the first page.
func (p *Page) url() string { return p.Name + ".html" }

// twin is where the page's Markdown is, as seen from the first page.
func (p *Page) twin() string { return p.file }

// parse reads a page, without its comments: they are for the tests of the pages.
func (p *Page) parse() (ast.Node, []byte) {
	source := []byte(p.Text)
	root := markdown.Parser().Parse(text.NewReader(source), parser.WithContext(parser.NewContext(parser.WithIDs(anchors{}))))
	var comments []ast.Node
	_ = ast.Walk(root, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if entering && comment(n, source) {
			comments = append(comments, n)
		}
		return ast.WalkContinue, nil
	})
	for _, n := range comments {
		n.Parent().RemoveChild(n.Parent(), n)
	}
	return root, source
}

func comment(n ast.Node, source []byte) bool {
	var lines *text.Segments
	switch n := n.(type) {
	case *ast.HTMLBlock:
		lines = n.Lines()
	case *ast.RawHTML:
		lines = n.Segments
	default:
		return false
	}
	return bytes.HasPrefix(bytes.TrimSpace(lines.Value(source)), []byte("<!--"))
}

// html is the page's text as HTML.
func (p *Page) html() string {
	root, source := p.parse()
	_ = ast.Walk(root, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if link, ok := n.(*ast.Link); ok && entering {
			link.Destination = []byte(p.destination(string(link.Destination)))
		}
		return ast.WalkContinue, nil
	})
	var b bytes.Buffer
	if err := markdown.Renderer().Render(&b, source, root); err != nil {
		panic(err) // into memory
	}
	// Readers without a mouse scroll wide tables and blocks by the keyboard.
	return wide.Replace(b.String())
}

var wide = strings.NewReplacer("<pre>", `<pre tabindex="0">`, "<table>", `<div class="table" tabindex="0"><table>`, "</table>", "</table></div>")

// destination is where a link of the source leads on a page of HTML.
func (p *Page) destination(to string) string {
	if strings.Contains(to, ":") || strings.HasPrefix(to, "#") {
		return to
	}
	file, fragment, _ := strings.Cut(to, "#")
	switch target := path.Join(path.Dir(p.file), file); {
	case strings.HasPrefix(target, ".."):
		file = repository + strings.TrimPrefix(strings.TrimPrefix(target, ".."), "/")
	case path.Ext(file) == ".md":
		file = path.Join(path.Dir(file), path.Base(nameOf(file))) + ".html"
	}
	if fragment != "" {
		file += "#" + fragment
	}
	return file
}

// anchors names headings as GitHub does, so that a link works there and here.
type anchors map[string]int

var noAnchor = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)

// Generate implements [parser.IDs].
func (a anchors) Generate(heading []byte, _ ast.NodeKind) []byte {
	id := strings.ReplaceAll(noAnchor.ReplaceAllString(strings.ToLower(plain(string(heading))), ""), " ", "-")
	a[id]++
	if n := a[id] - 1; n > 0 {
		id += "-" + strconv.Itoa(n)
	}
	return []byte(id)
}

// Put implements [parser.IDs].
func (a anchors) Put(id []byte) { a[string(id)]++ }

// section is a heading and the text below it.
type section struct{ heading, anchor, text string }

// sectionsOf splits a page at its headings. The first section begins with the title.
func sectionsOf(p *Page) []section {
	root, source := p.parse()
	all := []section{{}}
	for n := root.FirstChild(); n != nil; n = n.NextSibling() {
		h, ok := n.(*ast.Heading)
		if !ok {
			last := &all[len(all)-1]
			last.text = strings.TrimSpace(last.text + " " + words(n, source))
			continue
		}
		if h.Level > 1 {
			all = append(all, section{})
		}
		id, _ := h.AttributeString("id")
		anchor, _ := id.([]byte)
		all[len(all)-1].heading, all[len(all)-1].anchor = words(n, source), string(anchor)
	}
	return all
}

// words is the text of a node, without its marks.
func words(n ast.Node, source []byte) string {
	var b strings.Builder
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		switch n := n.(type) {
		case *ast.Text:
			if entering {
				b.Write(n.Segment.Value(source))
				if n.SoftLineBreak() || n.HardLineBreak() {
					b.WriteByte(' ')
				}
			}
		case *ast.CodeBlock, *ast.FencedCodeBlock:
			if entering {
				b.Write(n.Lines().Value(source))
			}
		default:
			if n.Type() == ast.TypeBlock && !entering {
				b.WriteByte(' ')
			}
		}
		return ast.WalkContinue, nil
	})
	return strings.Join(strings.Fields(b.String()), " ")
}
