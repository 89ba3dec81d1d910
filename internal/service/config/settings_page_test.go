package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/semelhq/semel/internal/rig/yamlschema"
)

// property is a setting in the schema.
type property struct {
	Description string
	Enum        []any
	Default     any
	Properties  map[string]property
	Items       *property
	AnyOf       []property
	// Additional are the values of an object of any names, or false.
	Additional json.RawMessage `json:"additionalProperties"`
}

// below are the settings in a setting, and how their paths go on from it.
func (p *property) below() (string, map[string]property) {
	var values property
	switch {
	case p.Items != nil:
		mark, list := p.Items.below()
		return "[]" + mark, list
	case bytes.HasPrefix(p.Additional, []byte("{")) && json.Unmarshal(p.Additional, &values) == nil:
		mark, list := values.below()
		return ".NAME" + mark, list
	}
	return "", p.Properties
}

// marks are what Markdown would read in a text.
var marks = strings.NewReplacer("|", `\|`, "*", `\*`, "<", `\<`)

// rows adds a row for each setting.
func rows(b *strings.Builder, path string, settings map[string]property) {
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		p := settings[name]
		var text strings.Builder
		text.WriteString(p.Description)
		for _, either := range append(p.AnyOf, p) {
			if either.Enum != nil {
				fmt.Fprintf(&text, " One of `%s`.", strings.ReplaceAll(strings.Trim(fmt.Sprint(either.Enum), "[]"), " ", "`, `"))
			}
		}
		standard := ""
		if p.Default != nil {
			standard = fmt.Sprintf("`%v`", p.Default)
		}
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", path+name, marks.Replace(text.String()), standard)
		mark, list := p.below()
		rows(b, path+name+mark+".", list)
	}
}

func settingsPage(t *testing.T, schema []byte) string {
	t.Helper()
	var whole property
	if err := json.Unmarshal(schema, &whole); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString(`# Settings

- **For** people who write a configuration file.
- **Afterwards** you know every setting, and its default.

These are all settings, by path: ` + "`[]`" + ` stands for an entry of a list, and ` + "`NAME`" + ` for a name that you choose. [The service](service.md) explains them together, with examples. ` + "`semel config schema`" + ` prints a JSON schema for your editor, and ` + "`semel config explain`" + ` explains a setting and where its value comes from.

This page is made from the schema. Write it anew with ` + "`go test ./internal/service/config -update`" + `.

| setting | what it does | default |
|---|---|---|
`)
	rows(&b, "", whole.Properties)
	return b.String()
}

// TestEverySettingIsOnThePage holds docs/settings.md to the schema.
func TestEverySettingIsOnThePage(t *testing.T) {
	const file = "../../../docs/settings.md"
	schema, err := os.ReadFile("schema.json") // TestSchema may have written it just now
	if err != nil {
		t.Fatal(err)
	}
	want := settingsPage(t, schema)
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != want {
		t.Errorf("docs/settings.md is out of date (%v); write it anew with go test ./internal/service/config -update", err)
	}
	if n := strings.Count(want, "\n| `"); n < 250 {
		t.Errorf("the page has %d settings", n)
	}
}

// TestEverySettingIsRead finds settings that no program reads, by their names.
func TestEverySettingIsRead(t *testing.T) {
	read := map[string]bool{}
	for _, root := range []string{"../..", "../../../service", "../../../cmd"} {
		err := filepath.WalkDir(root, func(name string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok {
					read[s.Sel.Name] = true
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for setting := range yamlschema.Comments(t, "../auth", "../../reconcile") {
		if _, field, _ := strings.Cut(setting, "."); !read[field] {
			t.Errorf("nothing reads %s", setting)
		}
	}
}
