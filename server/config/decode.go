package config

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"github.com/semelhq/semel/internal/yamltree"
)

// A decoder fills a Config from a file.
type decoder struct {
	*problems
	env func(string) (string, bool)
}

// decode reads the file into v. It reports false if the file could not be
// parsed, so that nothing can be said about its content.
func (d *decoder) decode(data []byte, v reflect.Value) bool {
	body, ok := d.parse(data)
	if !ok {
		return false
	}
	if body != nil {
		d.section("", v, body)
	}
	return true
}

// parse returns the top of the one document in the file, or nil if the file is
// empty.
func (d *decoder) parse(data []byte) (body ast.Node, ok bool) {
	body, fault := yamltree.Parse(data, yamltree.Limits{Bytes: maxFile, Unreasonable: unreasonable})
	if fault != nil {
		d.addAt("", fault.Line, fault.Column, fault.Message, fault.Hint)
	}
	return body, fault == nil
}

// addNode reports an error at a node.
func (d *decoder) addNode(path string, n ast.Node, message, hint string) {
	line, column := yamltree.Place(n)
	d.addAt(path, line, column, message, hint)
}

// mark remembers where a setting was written.
func (d *decoder) mark(path string, n ast.Node) {
	line, column := yamltree.Place(n)
	d.origins.at[path] = Origin{Kind: FromFile, File: d.file, Line: line, Column: column}
}

// section decodes a mapping into a struct.
func (d *decoder) section(path string, v reflect.Value, n ast.Node) {
	mapping, ok := n.(ast.MapNode)
	if !ok {
		d.wrongType(path, n, "names with values below it")
		return
	}
	d.mark(path, n)
	fields := fieldsOf(v.Type())
	lines := map[string]int{}
	var slips []string // names that were probably meant by misspelt ones
	for it := mapping.MapRange(); it.Next(); {
		key := it.Key()
		name, ok := d.name(path, key)
		if !ok {
			continue
		}
		at := join(path, name)
		if first, twice := lines[name]; twice {
			d.faulty[at] = false
			d.addNode(at, key, fmt.Sprintf("%s is given twice, first in line %d", name, first), "keep one of them")
			continue
		}
		lines[name], _ = yamltree.Place(key)
		found := false
		for _, f := range fields {
			if f.name == name {
				found = true
				d.value(at, v.Field(f.index), f, it.Value(), key)
			}
		}
		if !found {
			d.addNode(at, key, fmt.Sprintf("there is no setting %s", strconv.Quote(name)), d.nameHint(path, name, v.Type()))
			slips = append(slips, nearest(name, fieldNames(v.Type())))
		}
	}
	for _, f := range fields {
		if _, given := lines[f.name]; given {
			continue
		}
		switch {
		case slices.Contains(slips, f.name):
			d.faulty[join(path, f.name)] = true
		case f.required:
			d.add(join(path, f.name), f.name+" is missing", "")
		}
	}
}

// name is the text of a key of a mapping.
func (d *decoder) name(path string, key ast.MapKeyNode) (string, bool) {
	switch k := key.(type) {
	case *ast.StringNode:
		return k.Value, true
	case *ast.MergeKeyNode:
		d.addNode(join(path, "<<"), key, "merge keys are not supported", "write the settings out")
	case ast.ScalarNode:
		return k.GetToken().Value, true
	default:
		d.addNode(join(path, "?"), key, "the name of a setting must be a plain word", "")
	}
	return "", false
}

// nameHint suggests a name of this section, or says which section has it.
func (d *decoder) nameHint(path, name string, t reflect.Type) string {
	names := fieldNames(t)
	if hint := didYouMean(name, names); hint != "" {
		return hint
	}
	if path == "" {
		for _, f := range fieldsOf(t) {
			if section := t.Field(f.index).Type; section.Kind() == reflect.Struct {
				if slices.Contains(fieldNames(section), name) {
					return "it belongs under " + f.name
				}
			}
		}
	}
	return "the names here are " + strings.Join(names, ", ")
}

// value decodes the value of one setting.
func (d *decoder) value(path string, v reflect.Value, f field, n ast.Node, key ast.Node) {
	switch {
	case n == nil || n.Type() == ast.NullType:
		// A section whose lines are all comments has no value. A setting without
		// one was probably forgotten.
		if v.Kind() == reflect.Struct || v.Kind() == reflect.Slice && !f.required {
			return
		}
		d.addNode(path, key, f.name+" has no value", "")
	case unsupported(n) != "":
		d.addNode(path, n, unsupported(n)+" are not supported", "write the value itself")
	case v.Kind() == reflect.Struct:
		d.section(path, v, n)
	case v.Kind() == reflect.Slice:
		d.list(path, v, f, n)
	default:
		d.scalar(path, v, f, n)
	}
}

// list decodes a sequence.
func (d *decoder) list(path string, v reflect.Value, f field, n ast.Node) {
	var items []ast.Node
	sequence, ok := n.(*ast.SequenceNode)
	switch _, _, scalar := scalarText(n); {
	case ok:
		items = sequence.Values
	case f.single && scalar:
		items = []ast.Node{n}
	default:
		d.wrongType(path, n, "a list")
		return
	}
	d.mark(path, n)
	if f.required && len(items) == 0 {
		d.addNode(path, n, f.name+" is empty", "")
	}
	if len(items) == 0 && !f.distinct {
		return
	}
	list := reflect.MakeSlice(v.Type(), len(items), len(items))
	v.Set(list)
	for i, item := range items {
		element := list.Index(i)
		if element.Kind() == reflect.Struct {
			fillDefaults(element)
		}
		at := fmt.Sprintf("%s[%d]", path, i)
		d.value(at, element, field{name: "item", enum: f.enum, secret: f.secret, required: true}, item, n)
		if item == nil || item.Type() == ast.NullType {
			d.addNode(at, n, fmt.Sprintf("item %d of %s has no value", i, f.name), "")
		}
	}
}

// scalar decodes a single value.
func (d *decoder) scalar(path string, v reflect.Value, f field, n ast.Node) {
	text, isText, ok := scalarText(n)
	if !ok {
		d.wrongType(path, n, kindName(v, f))
		return
	}
	d.mark(path, n)
	expanded, used, fault := expand(text, d.env)
	if fault != nil {
		d.addNode(path, n, fault.message, fault.hint)
		return
	}
	if !used && !d.fits(path, v, f, n, text, isText) {
		return
	}
	if f.required && expanded == "" {
		d.addNode(path, n, f.name+" is empty", "")
		return
	}
	if bad, is := errors.AsType[*valueError](setText(v, f, expanded)); is {
		d.addNode(path, n, bad.message, bad.hint)
	}
}

// fits reports an error if a value was written as another type than the setting
// has: text where a number belongs, or the other way round.
func (d *decoder) fits(path string, v reflect.Value, f field, n ast.Node, text string, isText bool) bool {
	quoted := false
	if s, ok := n.(*ast.StringNode); ok {
		quoted = s.Token.Type == token.SingleQuoteType || s.Token.Type == token.DoubleQuoteType
	}
	switch {
	case v.Type() == durationType || v.Type() == sizeType:
		return true
	case f.secret != "" && !isText:
		d.addNode(path, n, "the value is not text", "write it in quotes")
		return false
	case v.Kind() == reflect.String && !isText && f.enum == nil:
		d.addNode(path, n, fmt.Sprintf("%s is not text", text), "write "+strconv.Quote(text)+" with the quotes")
		return false
	case v.Kind() != reflect.String && quoted:
		d.addNode(path, n, fmt.Sprintf("%s is text, not %s", strconv.Quote(text), kindName(v, f)), "write it without quotes")
		return false
	}
	return true
}

// scalarText is the text of a scalar as it was written, and whether YAML takes
// it for text.
func scalarText(n ast.Node) (text string, isText, ok bool) {
	switch x := n.(type) {
	case *ast.StringNode:
		return x.Value, true, true
	case *ast.LiteralNode:
		return strings.TrimSuffix(x.Value.Value, "\n"), true, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return x.GetToken().Value, false, true
	}
	return "", false, false
}

func unsupported(n ast.Node) string {
	switch n.Type() {
	case ast.AnchorType:
		return "anchors (&)"
	case ast.AliasType:
		return "aliases (*)"
	case ast.TagType:
		return "tags (!)"
	}
	return ""
}

func (d *decoder) wrongType(path string, n ast.Node, want string) {
	if what := unsupported(n); what != "" {
		d.addNode(path, n, what+" are not supported", "write the value itself")
		return
	}
	have := "a single value"
	switch n.(type) {
	case ast.MapNode:
		have = "a mapping"
	case *ast.SequenceNode:
		have = "a list"
	}
	message, hint := fmt.Sprintf("this is %s, not %s", have, want), ""
	if want == "a list" && have == "a single value" {
		text, _, _ := scalarText(n)
		hint = "write [" + maskSecrets(text) + "]"
	}
	if want == "a list" && have == "a mapping" {
		hint = "put a dash before each item"
	}
	d.addNode(path, n, message, hint)
}

func kindName(v reflect.Value, f field) string {
	switch {
	case f.enum != nil:
		return "one of " + strings.Join(f.enum, ", ")
	case v.Type() == durationType:
		return "a duration"
	case v.Type() == sizeType:
		return "a size"
	case v.Kind() == reflect.Int:
		return "a whole number"
	case v.Kind() == reflect.Float64:
		return "a number"
	case v.Kind() == reflect.Bool:
		return "true or false"
	}
	return "text"
}
