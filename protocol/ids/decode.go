package ids

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"github.com/semelhq/semel/internal/yamltree"
)

// Bounds of a registry file. The parser calls itself for everything inside of
// something.
const (
	maxFile  = 4 << 20 // bytes
	maxDepth = 64      // lists and mappings in each other
)

// decoder fills a Registry from YAML and remembers where everything was.
type decoder struct{ *report }

// parse returns the top of the one document, or nil after a problem.
func (d *decoder) parse(data []byte) ast.Node {
	body, fault := yamltree.Parse(data, yamltree.Limits{Bytes: maxFile, Unreasonable: tooDeep})
	switch {
	case fault != nil:
		d.addAt(position{fault.Line, fault.Column}, "", fault.Message, fault.Hint)
	case body == nil:
		d.addAt(position{}, "", "the file is empty", "begin with version: 1")
	}
	return body
}

func tooDeep(tokens token.Tokens) (*token.Token, string) {
	flow, line, inLine := 0, 0, 0
	for _, t := range tokens {
		if t.Position.Line != line {
			line, inLine = t.Position.Line, 0
		}
		switch t.Type {
		case token.SequenceStartType, token.MappingStartType:
			flow++
		case token.SequenceEndType, token.MappingEndType:
			flow--
		case token.SequenceEntryType, token.MappingKeyType, token.AnchorType, token.TagType:
			inLine++
		}
		if flow > maxDepth || inLine > maxDepth || t.Position.IndentLevel > maxDepth {
			return t, fmt.Sprintf("more than %d lists and mappings in each other", maxDepth)
		}
	}
	return nil, ""
}

func place(n ast.Node) position {
	line, column := yamltree.Place(n)
	return position{line, column}
}

// eachMember visits the members of a mapping. It reports false if n is none.
func (d *decoder) eachMember(path string, n ast.Node, visit func(name string, key, value ast.Node)) bool {
	mapping, ok := n.(ast.MapNode)
	if !ok {
		d.addAt(place(n), path, "this is "+nodeKind(n)+", not names with values below it", "")
		return false
	}
	d.at[path] = place(n)
	seen := map[string]bool{}
	for it := mapping.MapRange(); it.Next(); {
		key := it.Key()
		name, isText, ok := scalar(key)
		switch {
		case !ok || !isText:
			d.addAt(place(key), join(path, "?"), "a name is no plain text", "write it in quotes; merge keys are not supported")
		case seen[name]:
			d.faulty[join(path, name)] = false
			d.addAt(place(key), join(path, name), name+" is given twice", "keep one of them")
		default:
			seen[name] = true
			visit(name, key, it.Value())
		}
	}
	return true
}

// section decodes a mapping into a struct.
func (d *decoder) section(path string, v reflect.Value, n ast.Node) {
	fields, names := map[string]int{}, []string{}
	for i := range v.NumField() {
		if name := v.Type().Field(i).Tag.Get("yaml"); name != "" {
			fields[name] = i
			names = append(names, name)
		}
	}
	given := map[string]bool{}
	ok := d.eachMember(path, n, func(name string, key, value ast.Node) {
		i, known := fields[name]
		if !known {
			d.addAt(place(key), join(path, name), "there is no setting "+strconv.Quote(name), "the names here are "+strings.Join(names, ", "))
			return
		}
		given[name] = true
		if value == nil || value.Type() == ast.NullType && v.Type().Field(i).Type != rawType {
			d.addAt(place(key), join(path, name), name+" has no value", "")
			return
		}
		d.value(join(path, name), v.Field(i), v.Type().Field(i).Tag, value)
	})
	for _, name := range names {
		if ok && !given[name] && v.Type().Field(fields[name]).Tag.Get("need") != "" {
			d.add(join(path, name), name+" is missing", "")
		}
	}
}

var (
	rawType      = reflect.TypeFor[json.RawMessage]()
	durationType = reflect.TypeFor[Duration]()
)

// value decodes one value.
func (d *decoder) value(path string, v reflect.Value, tag reflect.StructTag, n ast.Node) {
	d.at[path] = place(n)
	switch {
	case v.Type() == rawType:
		tree, ok := d.tree(path, n)
		if text, err := json.Marshal(tree); ok && err == nil {
			v.SetBytes(text)
		}
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.value(path, v.Elem(), tag, n)
	case v.Kind() == reflect.Struct:
		d.section(path, v, n)
	case v.Kind() == reflect.Slice:
		list, ok := n.(*ast.SequenceNode)
		if !ok {
			d.addAt(place(n), path, "this is "+nodeKind(n)+", not a list", "")
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), len(list.Values), len(list.Values)))
		for i, item := range list.Values {
			d.value(fmt.Sprintf("%s[%d]", path, i), v.Index(i), tag, item)
		}
	default:
		d.scalarValue(path, v, tag, n)
	}
}

// scalarValue decodes a value of one word or number.
func (d *decoder) scalarValue(path string, v reflect.Value, tag reflect.StructTag, n ast.Node) {
	text, isText, ok := scalar(n)
	wrong := func(want string) { d.addAt(place(n), path, "this is "+nodeKind(n)+", not "+want, "") }
	switch {
	case !ok:
		wrong("a single value")
	case v.Type() == durationType:
		span, ok := parseDuration(text)
		if !ok {
			d.addAt(place(n), path, strconv.Quote(text)+" is no duration", "write numbers with units, such as 90s, 1h30m or 7d")
			return
		}
		v.SetInt(int64(span))
	case v.Kind() == reflect.String && !isText:
		wrong("text")
	case v.Kind() == reflect.String:
		if allowed := strings.Split(tag.Get("oneof"), ","); tag.Get("oneof") != "" && !slices.Contains(allowed, text) {
			d.addAt(place(n), path, strconv.Quote(text)+" is not one of "+strings.Join(allowed, ", "), "")
			return
		}
		if text == "" {
			d.addAt(place(n), path, "this is empty", "")
			return
		}
		v.SetString(text)
	case v.Kind() == reflect.Bool && n.Type() == ast.BoolType:
		v.SetBool(n.(*ast.BoolNode).Value)
	case v.Kind() == reflect.Bool:
		wrong("true or false")
	case v.Kind() == reflect.Int:
		number, err := strconv.ParseInt(text, 10, 32)
		if err != nil || isText {
			wrong("a whole number")
			return
		}
		v.SetInt(number)
	case v.Kind() == reflect.Float64:
		number, err := strconv.ParseFloat(text, 64)
		if err != nil || isText {
			wrong("a number")
			return
		}
		v.SetFloat(number)
	}
}

// tree is the JSON of any value.
func (d *decoder) tree(path string, n ast.Node) (v any, ok bool) {
	if n == nil {
		return nil, true
	}
	d.at[path] = place(n)
	switch x := n.(type) {
	case *ast.NullNode:
		return nil, true
	case *ast.BoolNode:
		return x.Value, true
	case *ast.SequenceNode:
		list := make([]any, len(x.Values))
		ok = true
		for i, item := range x.Values {
			value, good := d.tree(fmt.Sprintf("%s[%d]", path, i), item)
			list[i], ok = value, ok && good
		}
		return list, ok
	case ast.MapNode:
		object := map[string]any{}
		ok = true
		d.eachMember(path, n, func(name string, key, value ast.Node) {
			at := join(path, name)
			item, good := d.tree(at, value)
			object[name], ok = item, ok && good
			d.at[at] = place(key)
		})
		return object, ok
	}
	text, isText, ok := scalar(n)
	if ok && isText {
		return text, true
	}
	if ok && json.Valid([]byte(text)) {
		return json.Number(text), true
	}
	d.addAt(place(n), path, "this has no JSON form", "write text in quotes and numbers in decimal digits")
	return nil, false
}

// scalar is the text of a scalar as it was written, and whether YAML takes it for
// text.
func scalar(n ast.Node) (text string, isText, ok bool) {
	switch x := n.(type) {
	case *ast.StringNode:
		return x.Value, true, true
	case *ast.LiteralNode:
		return strings.TrimSuffix(x.Value.Value, "\n"), true, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return x.GetToken().Value, false, true
	}
	return "", false, false
}

func nodeKind(n ast.Node) string {
	switch n.(type) {
	case ast.MapNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case *ast.StringNode, *ast.LiteralNode:
		return "text"
	case *ast.AnchorNode, *ast.AliasNode, *ast.TagNode:
		return "an anchor, an alias or a tag, which are not supported"
	}
	text, _, _ := scalar(n)
	return cmp.Or(text, "nothing")
}
