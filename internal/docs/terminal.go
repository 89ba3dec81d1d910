package docs

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/yuin/goldmark/ast"
	tables "github.com/yuin/goldmark/extension/ast"
)

// Terminal is the page as text of a width, with headings in bold if the terminal has that.
func (p *Page) Terminal(width int, bold bool) string {
	root, source := p.parse()
	t := &terminal{source: source, width: width, bold: bold}
	for n := root.FirstChild(); n != nil; n = n.NextSibling() {
		t.block(n, "")
	}
	return strings.TrimLeft(t.String(), "\n")
}

type terminal struct {
	strings.Builder
	source []byte
	width  int
	bold   bool
}

func (t *terminal) block(n ast.Node, indent string) {
	switch n := n.(type) {
	case *ast.Heading:
		line := strings.Repeat("#", n.Level) + " " + t.inline(n)
		if t.bold {
			line = "\x1b[1m" + line + "\x1b[0m"
		}
		t.WriteString("\n" + line + "\n")
	case *ast.FencedCodeBlock, *ast.CodeBlock:
		t.WriteByte('\n')
		for line := range strings.Lines(string(n.Lines().Value(t.source))) {
			t.WriteString(indent + "    " + line)
		}
	case *ast.List:
		t.list(n, indent)
	case *tables.Table:
		t.table(n, indent)
	case *ast.HTMLBlock, *ast.ThematicBreak: // a picture, or an anchor
	default:
		if n.FirstChild() != nil && n.FirstChild().Type() == ast.TypeBlock {
			for c := n.FirstChild(); c != nil; c = c.NextSibling() {
				t.block(c, indent+"  ")
			}
			return
		}
		t.WriteString("\n" + wrap(t.inline(n), t.width, indent, indent))
	}
}

func (t *terminal) list(l *ast.List, indent string) {
	t.WriteByte('\n')
	number := l.Start
	for item := l.FirstChild(); item != nil; item = item.NextSibling() {
		mark := "- "
		if l.IsOrdered() {
			mark = fmt.Sprintf("%d. ", number)
			number++
		}
		inner := indent + strings.Repeat(" ", len(mark))
		for c := item.FirstChild(); c != nil; c = c.NextSibling() {
			if c == item.FirstChild() && c.Kind() != ast.KindList {
				t.WriteString(wrap(t.inline(c), t.width, indent+mark, inner))
			} else {
				t.block(c, inner)
			}
		}
	}
}

// table aligns the cells where they fit, and lists them below each other where they don't.
func (t *terminal) table(n *tables.Table, indent string) {
	var rows [][]string
	var widths []int
	for row := n.FirstChild(); row != nil; row = row.NextSibling() {
		var cells []string
		for c := row.FirstChild(); c != nil; c = c.NextSibling() {
			cell := t.inline(c)
			if len(widths) == len(cells) {
				widths = append(widths, 0)
			}
			widths[len(cells)] = max(widths[len(cells)], utf8.RuneCountInString(cell))
			cells = append(cells, cell)
		}
		rows = append(rows, cells)
	}
	sum := len(indent)
	for _, w := range widths {
		sum += w + 2
	}
	t.WriteByte('\n')
	for i, cells := range rows {
		if sum <= t.width {
			var line strings.Builder
			line.WriteString(indent)
			for c, cell := range cells {
				line.WriteString(cell + strings.Repeat(" ", widths[c]-utf8.RuneCountInString(cell)+2))
			}
			t.WriteString(strings.TrimRight(line.String(), " ") + "\n")
			continue
		}
		if i == 0 {
			continue // each row says the heads
		}
		for c, cell := range cells {
			if first, head := "- ", rows[0][c]; cell != "" {
				if c > 0 {
					first = "  "
				}
				if head != "" {
					head += ": "
				}
				t.WriteString(wrap(head+cell, t.width, indent+first, indent+"    "))
			}
		}
	}
}

// inline is the text of a node. Words of code keep their backquotes, and links to pages say
// which page.
func (t *terminal) inline(n ast.Node) string {
	var b strings.Builder
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		switch c := c.(type) {
		case *ast.Text:
			b.Write(c.Segment.Value(t.source))
			if c.SoftLineBreak() || c.HardLineBreak() {
				b.WriteByte(' ')
			}
		case *ast.String:
			b.Write(c.Value)
		case *ast.CodeSpan:
			b.WriteString("`" + t.inline(c) + "`")
		case *ast.AutoLink:
			b.Write(c.URL(t.source))
		case *ast.Link:
			b.WriteString(t.inline(c) + t.leads(string(c.Destination), t.inline(c)))
		default:
			b.WriteString(t.inline(c))
		}
	}
	return b.String()
}

// leads says where a link leads: to a page that the command shows, or to an address.
func (t *terminal) leads(to, text string) string {
	switch file, _, _ := strings.Cut(to, "#"); {
	case strings.HasSuffix(file, ".md") && !strings.HasPrefix(file, "../"):
		if name := nameOf(file); !strings.EqualFold(name, text) {
			return " (semel docs " + name + ")"
		}
	case strings.HasPrefix(to, "http") && to != text:
		return " (" + to + ")"
	}
	return ""
}

// wrap breaks a text into lines of at most a width.
func wrap(text string, width int, firstIndent, indent string) string {
	var b strings.Builder
	line, empty := firstIndent, true
	for word := range strings.FieldsSeq(text) {
		if !empty && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
			b.WriteString(line + "\n")
			line, empty = indent, true
		}
		if !empty {
			line += " "
		}
		line, empty = line+word, false
	}
	return b.String() + line + "\n"
}

// Contents lists all pages, without their text, and as text for a terminal.
func (b *Book) Contents() (list []Page, text string) {
	var w strings.Builder
	for _, k := range b.Kinds {
		w.WriteString("\n" + k.Title + "\n")
		for _, p := range k.Pages {
			short := *p
			short.Text = ""
			list = append(list, short)
			fmt.Fprintf(&w, "  %-20s %s\n", p.Name, p.Title)
		}
	}
	return list, strings.TrimPrefix(w.String()+"\n'semel docs NAME' shows a page, 'semel docs WORD...' finds one.", "\n")
}

// PageNames are the names of all pages.
func (b *Book) PageNames() (names []string) {
	for _, p := range b.Pages {
		names = append(names, p.Name)
	}
	return names
}

// A Hit is a page that has the words of a search, in the section with this heading.
type Hit struct {
	Name    string `json:"name"`
	Title   string `json:"title"`
	Heading string `json:"heading,omitempty"`
	Excerpt string `json:"excerpt"`
}

// Hits finds pages by words, as [Book.Search] does, and says it as text for a terminal.
func (b *Book) Hits(words string) (hits []Hit, text string) {
	var w strings.Builder
	for _, s := range b.Search(words) {
		h := Hit{b.Pages[s.Page].Name, s.Title, s.Heading, s.Excerpt}
		hits = append(hits, h)
		fmt.Fprintf(&w, "%-20s %s\n%s", h.Name, s.name(), wrap(h.Excerpt, 88, "    ", "    "))
	}
	return hits, w.String() + "\n'semel docs NAME' shows a page."
}
