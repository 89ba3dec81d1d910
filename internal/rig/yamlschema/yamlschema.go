// Package yamlschema makes the JSON Schema of a file that package strictyaml reads, from the
// struct that it is read into and the comments there. Tests compare it with the schema that
// is embedded.
package yamlschema

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/semelhq/semel/internal/strictyaml"
)

// Comments reads the comments on settings in the package of the running test, and in further
// directories. They are keyed by struct and field.
func Comments(t *testing.T, further ...string) map[string]string {
	t.Helper()
	found := map[string]string{}
	var names []string
	for _, dir := range append([]string{"."}, further...) {
		more, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, more...)
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

// members is a JSON object that keeps the order of its members.
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

// Schema describes a file.
type Schema struct {
	Title    string
	Comments map[string]string
	// Variables says that a scalar that isn't text may also be a variable of the environment.
	Variables bool
}

// Of is the JSON Schema of a file that is decoded into t, indented.
func (s *Schema) Of(t reflect.Type) ([]byte, error) {
	doc := append(members{{"$schema", "https://json-schema.org/draft/2020-12/schema"}, {"title", s.Title}}, s.object(t)...)
	compact, err := json.Marshal(doc)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := json.Indent(&out, compact, "", "  "); err != nil {
		return nil, err
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}

var variable = members{{"type", "string"}, {"pattern", `\$\{[A-Za-z_]`}}

// object describes a struct.
func (s *Schema) object(t reflect.Type) members {
	var properties members
	var required []string
	for _, f := range strictyaml.Fields(t) {
		properties = append(properties, member{f.Name, s.field(t, f)})
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

// field describes a member of a struct.
func (s *Schema) field(t reflect.Type, f strictyaml.Field) members {
	field, owner := t.FieldByIndex(f.Index), t
	for _, i := range f.Index[:len(f.Index)-1] {
		owner = owner.Field(i).Type
	}
	doc := members{{"description", s.Comments[owner.Name()+"."+field.Name]}}
	inner := field.Type
	if inner.Kind() == reflect.Pointer {
		inner = inner.Elem()
	}
	switch {
	case inner == reflect.TypeFor[json.RawMessage]():
		// any value
	case inner.Kind() == reflect.Slice:
		doc = append(doc, s.list(inner.Elem(), f)...)
	case inner.Kind() == reflect.Struct:
		object := s.object(inner)
		object[0].value = []string{"object", "null"} // a section whose lines are all comments
		doc = append(doc, object...)
	default:
		doc = append(doc, s.scalar(inner, f)...)
	}
	if f.Default != "" {
		var def any = f.Default
		if inner.Kind() == reflect.Int {
			def = json.RawMessage(f.Default)
		}
		doc = append(doc, member{"default", def})
	}
	return doc
}

// list describes a list with items of type t.
func (s *Schema) list(t reflect.Type, f strictyaml.Field) members {
	item := s.scalar(t, f)
	if t.Kind() == reflect.Struct {
		item = s.object(t)
	}
	types := []string{"array", "null"}
	if f.Single {
		types = append(types, "string")
	}
	if f.Pairs {
		types = append(types, "object")
	}
	doc := members{{"type", types}, {"items", item}}
	if f.Pairs {
		doc = append(doc, member{"additionalProperties", item})
	}
	if f.Required {
		doc[0].value = "array"
		doc = append(doc, member{"minItems", 1})
	}
	return doc
}

// scalar describes a single value.
func (s *Schema) scalar(t reflect.Type, f strictyaml.Field) members {
	orVariable := func(any ...members) members {
		if s.Variables {
			any = append(any, variable)
		}
		if len(any) == 1 {
			return any[0]
		}
		return members{{"anyOf", any}}
	}
	switch {
	case f.Enum != nil:
		return orVariable(members{{"enum", f.Enum}})
	case t == reflect.TypeFor[strictyaml.Duration]():
		return orVariable(members{{"type", "string"}, {"pattern", `^([0-9]+d)?([0-9.]+(ns|us|µs|ms|s|m|h))*$|^0$`}})
	case t == reflect.TypeFor[strictyaml.Size]():
		return orVariable(members{{"type", "integer"}}, members{{"type", "string"}, {"pattern", `^[0-9]+([KMGT]iB|[kKMGT]?B)?$`}})
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
