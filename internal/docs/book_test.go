package docs

import (
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

var forms = map[string]Form{"the service": {API: "../openapi.json"}, "a site": {Site: true, API: "openapi.json"}}

// TestEachPageSaysForWhom: whoever opens a page sees in two lines whether it's theirs.
func TestEachPageSaysForWhom(t *testing.T) {
	for _, p := range Ours().Pages {
		if strings.HasPrefix(p.Name, "adr/0") {
			continue // it has a question and a decision
		}
		begin := regexp.MustCompile(`\A# .+\n\n(<!-- .* -->\n\n)?- \*\*For\*\* .+\n- \*\*Afterwards\*\* .+\n\n`)
		if !begin.MatchString(p.Text) || !strings.HasPrefix(p.Afterwards, "you ") || !strings.HasSuffix(p.For, ".") {
			t.Errorf("%s doesn't begin with its title, '- **For** …' and '- **Afterwards** you …'", p.Name)
		}
	}
}

// TestKinds: the first page has each of the others below a kind, and pages that come later appear
// where they are listed.
func TestKinds(t *testing.T) {
	b := Ours()
	kinds := map[string]int{}
	for _, k := range b.Kinds {
		kinds[strings.SplitN(k.Title, ":", 2)[0]] += len(k.Pages)
	}
	if kinds["Tutorials"] != 6 || kinds["How-to"] < 20 || kinds["Reference"] < 8 || kinds["Explanation"] < 5 {
		t.Errorf("the kinds have %v", kinds)
	}
	for _, p := range b.Pages[1:] {
		if p.Kind == "" && !strings.Contains(p.Name, "/") {
			t.Errorf("docs/README.md doesn't list %s below a kind", p.Name)
		}
	}
	for _, p := range b.Pages {
		if strings.HasPrefix(p.Name, "adr/0") && !strings.Contains(b.Page("adr").Text, "]("+path.Base(p.file)+")") {
			t.Errorf("docs/adr/README.md lacks %s", p.Name)
		}
	}
	later, err := Open(fstest.MapFS{"README.md": {Data: []byte("# All\n\n## Guides\n\n- [New](new.md): says `what`\n")}, "new.md": {Data: []byte("# New page\n")}, "odd.md": {Data: []byte("# Odd\n")}})
	if err != nil {
		t.Fatal(err)
	}
	if p := later.Page("new"); p == nil || p.Kind != "Guides" || p.About != "says what" || later.Page("odd").Kind != "" {
		t.Errorf("%+v", later.Pages)
	}
}

var (
	references = regexp.MustCompile(`(?:href|src|srcset)="([^"]+)"`)
	ids        = regexp.MustCompile(` id="([^"]+)"`)
)

// TestLinks: each link of each form leads to a file of the same form, and to a heading that is
// there.
func TestLinks(t *testing.T) {
	for form, f := range forms {
		t.Run(form, func(t *testing.T) {
			b, anchors := Ours(), map[string][]string{}
			names := b.Names(f)
			for _, name := range names {
				text, media := b.File(f, name, "")
				if len(text) == 0 || media == "" {
					t.Errorf("%s is empty", name)
				}
				for _, m := range ids.FindAllStringSubmatch(string(text), -1) {
					anchors[name] = append(anchors[name], m[1])
				}
			}
			for _, name := range names {
				if path.Ext(name) != ".html" {
					continue
				}
				text, _ := b.File(f, name, "")
				for _, m := range references.FindAllStringSubmatch(string(text), -1) {
					to, err := url.Parse(strings.ReplaceAll(m[1], "&amp;", "&"))
					if err != nil || to.Scheme != "" {
						continue
					}
					target := name
					if to.Path != "" {
						target = path.Join(path.Dir(name), to.Path)
					}
					if target == f.API || target == path.Join("x", f.API) {
						continue
					}
					if !slices.Contains(names, target) {
						t.Errorf("%s links to %s, which isn't there", name, m[1])
					} else if to.Fragment != "" && !slices.Contains(anchors[target], to.Fragment) {
						t.Errorf("%s links to %s, which has no such heading", name, m[1])
					}
				}
			}
		})
	}
}

// TestPagesAskNobodyElse: a page loads nothing from elsewhere, and has nothing that its policy
// forbids.
func TestPagesAskNobodyElse(t *testing.T) {
	forbidden := regexp.MustCompile(`(?i)<script(>| [^>]*[^r]>)|<style| style="|\son[a-z]+="|(src|srcset|action)="(https?:)?//|<link[^>]*href="(https?:)?//`)
	for form, f := range forms {
		for _, name := range Ours().Names(f) {
			text, _ := Ours().File(f, name, "<script>alert(1)</script>")
			if path.Ext(name) != ".html" && path.Ext(name) != ".css" {
				continue
			}
			if m := forbidden.Find(text); m != nil {
				t.Errorf("%s: %s has %s", form, name, m)
			}
			if path.Ext(name) == ".html" && f.Site != strings.Contains(string(text), "http-equiv=\"Content-Security-Policy\"") {
				t.Errorf("%s: %s says the policy in the wrong place", form, name)
			}
			if strings.Contains(string(text), "<!--") {
				t.Errorf("%s: %s has a comment, which is for our tests", form, name)
			}
		}
	}
	for _, name := range []string{"", "nothing.html", "../go.mod", "images/../../go.mod", "files.go", "adr", "images/dashboard.json"} {
		if text, _ := Ours().File(Form{}, name, ""); text != nil {
			t.Errorf("%q is served", name)
		}
	}
}

// TestSearch finds what a stranger types, on the first page of hits.
func TestSearch(t *testing.T) {
	for query, want := range map[string][]string{
		"charged twice":        {"questions.html", "terminal.html", "check.html"},
		"409":                  {"handlers.html", "questions.html"},
		"held":                 {"terminal.html", "reconcile.html", "what-a-5xx-means.html"},
		"Kafka":                {"queues.html"},
		"kafk":                 {"queues.html"},
		"webhook signature":    {"webhooks.html"},
		"how do I restore":     {"backup.html"},
		"idempotency_conflict": {"codes.html"},
	} {
		var found []string
		for _, h := range Ours().Search(query) {
			page, _, _ := strings.Cut(h.URL, "#")
			found = append(found, page)
		}
		for _, page := range want {
			if !slices.Contains(found, page) {
				t.Errorf("%q finds %v, without %s", query, found, page)
			}
		}
	}
	for _, query := range []string{"", "  ", "xyzzyx", "§"} {
		if hits := Ours().Search(query); len(hits) > 0 {
			t.Errorf("%q finds %v", query, hits)
		}
	}
}

func TestStems(t *testing.T) {
	for _, words := range [][]string{{"charge", "charged", "charges", "charging"}, {"retry", "retries", "retried"}, {"key", "keys"}, {"class", "class"}, {"status", "status"}} {
		for _, w := range words {
			if stem(w) != stem(words[0]) {
				t.Errorf("%s is %s, and %s is %s", w, stem(w), words[0], stem(words[0]))
			}
		}
	}
}

// TestTerminal: a page for a terminal has all its words, tables too.
func TestTerminal(t *testing.T) {
	text := "# Title\n\n<!-- walk -->\n\n- **For** a\n\nSome `code` and [a page](mcp.md), [here](https://x.example/y) and [out](../go.mod).\n\n| a | b |\n|---|---|\n| one | two |\n\n1. first\n2. second\n\n```sh\n$ type\n```\n\n> quoted\n"
	p := &Page{Text: text, file: "x.md"}
	want := "# Title\n\n- For a\n\nSome `code` and a page (semel docs mcp),\nhere (https://x.example/y) and out.\n\na    b\none  two\n\n1. first\n2. second\n\n    $ type\n\n  quoted\n"
	if got := p.Terminal(40, false); got != want {
		t.Errorf("%q\nwant\n%q", got, want)
	}
	narrow := (&Page{Text: "| name | what it is |\n|---|---|\n| `held` | " + strings.Repeat("word ", 12) + "|\n"}).Terminal(30, true)
	if want := "- name: `held`\n  what it is: word word word\n    word word word word word\n    word word word word\n"; narrow != want {
		t.Errorf("%q\nwant\n%q", narrow, want)
	}
}
