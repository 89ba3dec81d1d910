package config

import (
	"bytes"
	"encoding/json"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/semelhq/semel/internal/strictyaml"
)

var update = flag.Bool("update", false, "write the golden files and the schema anew")

// comments are those of the fields of settings, by struct and field.
func comments(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	var names []string
	for _, dir := range []string{".", "../auth"} {
		files, err := filepath.Glob(dir + "/*.go")
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, files...)
	}
	for _, name := range names {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok && spec.Name.IsExported() && spec.Name.Name != "Setting" {
				if s, ok := spec.Type.(*ast.StructType); ok {
					for _, f := range s.Fields.List {
						if f.Tag == nil {
							continue
						}
						for _, name := range f.Names {
							found[spec.Name.Name+"."+name.Name] = strings.Join(strings.Fields(f.Doc.Text()), " ")
						}
					}
				}
			}
			return true
		})
	}
	return found
}

// members is an object whose members keep their order.
type members []member

type member struct {
	name  string
	value any
}

func (ms members) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	encode := func(v any) error {
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		return enc.Encode(v)
	}
	for i, m := range ms {
		b.WriteByte("{,"[min(i, 1)])
		if err := encode(m.name); err != nil {
			return nil, err
		}
		b.WriteByte(':')
		if err := encode(m.value); err != nil {
			return nil, err
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// variable is what a scalar that isn't text may also be in the file.
var variable = members{{"type", "string"}, {"pattern", `\$\{[A-Za-z_]`}}

// schemaOf describes a struct.
func schemaOf(t reflect.Type, comments map[string]string) members {
	var properties members
	var required []string
	for _, f := range strictyaml.Fields(t) {
		field, owner := t.FieldByIndex(f.Index), t
		for _, i := range f.Index[:len(f.Index)-1] {
			owner = owner.Field(i).Type
		}
		doc := members{{"description", comments[owner.Name()+"."+field.Name]}}
		inner := field.Type
		if inner.Kind() == reflect.Slice {
			item := scalarSchema(inner.Elem(), f)
			if inner.Elem().Kind() == reflect.Struct {
				item = schemaOf(inner.Elem(), comments)
			}
			types := []string{"array", "null"}
			if f.Single {
				types = append(types, "string")
			}
			if f.Pairs {
				types = append(types, "object")
			}
			doc = append(doc, member{"type", types}, member{"items", item})
			if f.Pairs {
				doc = append(doc, member{"additionalProperties", item})
			}
			if f.Required {
				doc[1].value = "array"
				doc = append(doc, member{"minItems", 1})
			}
		} else if inner.Kind() == reflect.Struct {
			doc = append(doc, schemaOf(inner, comments)...)
			doc[1].value = []string{"object", "null"} // a section whose lines are all comments
		} else {
			doc = append(doc, scalarSchema(inner, f)...)
		}
		if f.Default != "" {
			var def any = f.Default
			if inner.Kind() == reflect.Int {
				def = json.RawMessage(f.Default)
			}
			doc = append(doc, member{"default", def})
		}
		properties = append(properties, member{f.Name, doc})
		if f.Required {
			required = append(required, f.Name)
		}
	}
	out := members{{"type", "object"}, {"properties", properties}, {"additionalProperties", false}}
	if required != nil {
		out = append(out, member{"required", required})
	}
	return out
}

func scalarSchema(t reflect.Type, f strictyaml.Field) members {
	orVariable := func(m members) members { return members{{"anyOf", []members{m, variable}}} }
	switch {
	case f.Enum != nil:
		return orVariable(members{{"enum", f.Enum}})
	case t == reflect.TypeFor[Duration]():
		return orVariable(members{{"type", "string"}, {"pattern", `^([0-9]+d)?([0-9.]+(ns|us|µs|ms|s|m|h))*$|^0$`}})
	case t == reflect.TypeFor[Size]():
		return members{{"anyOf", []members{{{"type", "integer"}}, {{"type", "string"}, {"pattern", `^[0-9]+([KMGT]iB|[kKMGT]?B)?$`}}, variable}}}
	case t.Kind() == reflect.Int:
		return orVariable(members{{"type", "integer"}})
	case t.Kind() == reflect.Float64:
		return orVariable(members{{"type", "number"}})
	case t.Kind() == reflect.Bool:
		return orVariable(members{{"type", "boolean"}})
	}
	if f.Numbers {
		return members{{"type", []string{"string", "integer"}}}
	}
	return members{{"type", "string"}}
}

func TestSchema(t *testing.T) {
	t.Run("the schema in the tree is the one of the struct", func(t *testing.T) {
		doc := append(members{
			{"$schema", "https://json-schema.org/draft/2020-12/schema"},
			{"title", "Configuration of Semel"},
		}, schemaOf(reflect.TypeFor[Config](), comments(t))...)
		compact, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		var want bytes.Buffer
		if err := json.Indent(&want, compact, "", "  "); err != nil {
			t.Fatal(err)
		}
		want.WriteByte('\n')
		if *update {
			if err := os.WriteFile("schema.json", want.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
			return
		}
		if !bytes.Equal(Schema(), want.Bytes()) {
			t.Error("schema.json is out of date; write it anew with go test ./internal/service/config -update")
		}
	})
	t.Run("every setting has a description", func(t *testing.T) {
		for name, text := range comments(t) {
			if len(text) < 10 || strings.ContainsAny(text, "\n\t") {
				t.Errorf("the comment of %s is %q", name, text)
			}
		}
		if *update {
			return // what is embedded is the schema before
		}
		generic, err := Settings(oneOfEach(), &Origins{}, "")
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range generic {
			if s.Description == "" {
				t.Errorf("%s has no description", s.Path)
			}
		}
	})
	t.Run("every variable of the environment sets one setting", func(t *testing.T) {
		var names []string
		strictyaml.EachLeaf("", reflect.ValueOf(oneOfEach()).Elem(), func(path string, _ reflect.Value, _ strictyaml.Field) {
			if name := EnvName(path); name != "" {
				names = append(names, name)
			}
		})
		slices.Sort(names)
		if len(names) < 20 || len(slices.Compact(slices.Clone(names))) != len(names) {
			t.Errorf("the variables are %q", names)
		}
	})
}
