package ids

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/semelhq/semel/internal/argschema"
)

// jsonSchema2020 is the only supported draft.
const jsonSchema2020 = "https://json-schema.org/draft/2020-12/schema"

func (l *linter) args(e *Entry) {
	for i, n := range e.Args.Normalise {
		here := fmt.Sprintf("args.normalise[%d]", i)
		isPath := l.path(here+".path", n.Path)
		l.when(isPath && len(n.Default) > 0 && strings.Contains(string(n.Path), "[]"), here+".default", "a path through an array has no default", "")
		l.when(len(n.Rules) == 0 && len(n.Default) == 0, here, "it has neither rules nor a default", "")
	}
	for i, p := range e.Args.Strip {
		l.path(fmt.Sprintf("args.strip[%d]", i), p)
	}
	for i, k := range e.Args.Keep {
		here := fmt.Sprintf("args.keep[%d].path", i)
		isPath := l.path(here, k.Path)
		l.when(isPath && slices.Contains(e.Args.Strip, k.Path), here, string(k.Path)+" is stripped and kept", "keep one of them")
	}
	for i, n := range e.Args.Normalise {
		l.ephemeral(e, fmt.Sprintf("%s.args.normalise[%d].path", e.at, i), string(n.Path))
	}
	if len(e.Args.Schema) > 0 {
		l.schema(e, join(e.at, "args.schema"))
	}
}

func (l *linter) schema(e *Entry, at string) {
	var doc any
	if err := json.Unmarshal(e.Args.Schema, &doc); err != nil {
		l.Add(at, "this has no JSON form", "")
		return
	}
	object, _ := doc.(map[string]any)
	if draft, given := object["$schema"]; given && draft != jsonSchema2020 {
		l.Add(join(at, "$schema"), "this is not draft 2020-12", "leave it out, or write "+jsonSchema2020)
		return
	}
	var err error
	if e.schema, err = argschema.Compile(e.Args.Schema); err != nil {
		l.Add(at, "this isn't a JSON Schema: "+strings.Join(strings.Fields(err.Error()), " "), "")
		return
	}
	l.properties(e, doc, at, "", 0)
}

// properties looks for ephemeral names in the properties of a schema. path is the path in the
// arguments; it is "?" below definitions, because nobody knows where those are used.
func (l *linter) properties(e *Entry, schema any, at, path string, depth int) {
	object, ok := schema.(map[string]any)
	if !ok || depth > maxDepth {
		return
	}
	if properties, ok := object["properties"].(map[string]any); ok {
		for _, name := range sortedNames(properties) {
			here := join(at, "properties."+name)
			l.ephemeral(e, here, join(path, name))
			l.properties(e, properties[name], here, join(path, name), depth+1)
		}
	}
	for _, keyword := range sortedNames(object) {
		here, inner, byName := join(at, keyword), path, false
		switch keyword {
		case "items", "contains", "prefixItems":
			inner += "[]"
		case "$defs":
			inner, byName = "?", true
		case "dependentSchemas":
			byName = true
		case "not", "if", "then", "else", "allOf", "anyOf", "oneOf":
		default:
			continue
		}
		switch x := object[keyword].(type) {
		case []any:
			for i, item := range x {
				l.properties(e, item, fmt.Sprintf("%s[%d]", here, i), inner, depth+1)
			}
		case map[string]any:
			if !byName {
				x, here = map[string]any{keyword: x}, at // it is a single schema
			}
			for _, name := range sortedNames(x) {
				l.properties(e, x[name], join(here, name), inner, depth+1)
			}
		}
	}
}

// ephemeral reports an argument with an ephemeral name, unless the declaration says what to do
// with it (IDS-VII.4).
func (l *linter) ephemeral(e *Entry, at, path string) {
	name := path[strings.LastIndexAny(path, ".")+1:]
	what, is := ephemeral(strings.TrimRight(name, "[]"))
	spoken := func(p Path) bool {
		return string(p) == path || strings.HasPrefix(path, "?") && strings.HasSuffix("."+string(p), "."+name)
	}
	stripped := func(p Path) bool {
		return spoken(p) || strings.HasPrefix(path, string(p)+".") || strings.HasPrefix(path, string(p)+"[")
	}
	kept := func(k Kept) bool { return spoken(k.Path) }
	if !is || slices.ContainsFunc(e.Args.Strip, stripped) || slices.ContainsFunc(e.Args.Keep, kept) {
		return
	}
	name = cmp.Or(strings.TrimPrefix(path, "?."), name)
	l.Add(at, fmt.Sprintf("%s is %s by its name, and it would be part of the key", name, what),
		fmt.Sprintf("add it to strip, or to keep with because: and why all deliveries of one command have the same %s", name))
}
