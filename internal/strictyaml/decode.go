package strictyaml

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
	"github.com/semelhq/semel/internal/spelling"
)

// Options say how to read a file.
type Options struct {
	// Bytes is the largest file, and Depth is how deep lists and mappings may nest.
	Bytes, Depth int
	// Renamed has the replacements for settings of earlier versions, by their paths, or by
	// their names if no setting has that name.
	Renamed map[string]string
	// Expand replaces references in a scalar, and reports whether there were any. Errors
	// don't show the replacement, because it may be a secret. Nil replaces nothing.
	Expand func(text string) (out string, used bool, err *ValueError)
}

// decoder fills a struct from a file.
type decoder struct {
	*Report
	Options
}

// Decode reads the one document of a file into the struct v, which already has its defaults,
// and reports errors. It returns false if the file is empty or can't be parsed. Call
// [Report.Check] afterwards.
func (r *Report) Decode(data []byte, v reflect.Value, opts Options) bool {
	r.inFile = true
	d := &decoder{r, opts}
	body := d.parse(data)
	if body != nil {
		d.section("", v, body)
	}
	return body != nil
}

// addNode reports an error at a node.
func (d *decoder) addNode(path string, n ast.Node, message, hint string) {
	line, column := place(n)
	d.addAt(path, line, column, message, hint)
}

// mark records where a setting was written.
func (d *decoder) mark(path string, n ast.Node) {
	line, column := place(n)
	d.Origins.At[path] = Origin{Kind: FromFile, File: d.File, Line: line, Column: column}
}

// members visits the members of a mapping. It reports false if n isn't one.
func (d *decoder) members(path string, n ast.Node, visit func(name string, key, value ast.Node)) bool {
	mapping, ok := n.(ast.MapNode)
	if !ok {
		d.wrongType(path, n, "names with values below it")
		return false
	}
	d.mark(path, n)
	lines := map[string]int{}
	for it := mapping.MapRange(); it.Next(); {
		key := it.Key()
		name, ok := d.name(path, key)
		if !ok {
			continue
		}
		at := Join(path, name)
		if first, twice := lines[name]; twice {
			d.Faulty[at] = false
			d.addNode(at, key, fmt.Sprintf("%s is given twice, first in line %d", name, first), "keep one of them")
			continue
		}
		lines[name], _ = place(key)
		visit(name, key, it.Value())
	}
	return true
}

// section decodes a mapping into a struct.
func (d *decoder) section(path string, v reflect.Value, n ast.Node) {
	fields, names := Fields(v.Type()), fieldNames(v.Type())
	if text, isText, ok := scalarText(n); ok {
		d.addNode(path, n, "this is a single value, not names with values below it", sectionHint(path, v.Type(), text, isText))
		return
	}
	given := map[string]bool{}
	var slips []string // the probable names behind misspelt ones
	d.members(path, n, func(name string, key, value ast.Node) {
		at := Join(path, name)
		if i := slices.Index(names, name); i >= 0 {
			given[name] = true
			d.value(at, v.FieldByIndex(fields[i].Index), fields[i], value, key)
			return
		}
		d.addNode(at, key, fmt.Sprintf("there is no setting %s", strconv.Quote(name)), d.nameHint(path, name, v.Type()))
		slips = append(slips, spelling.Nearest(name, names))
	})
	for _, name := range slips {
		if name != "" && !given[name] {
			d.Faulty[Join(path, name)] = true
		}
	}
}

// sectionHint says how to write a section if the file has a single value for it: as its first
// member, if that can have the value.
func sectionHint(path string, section reflect.Type, text string, isText bool) string {
	first := Fields(section)[0]
	fits := isText && section.FieldByIndex(first.Index).Type.Kind() == reflect.String && (first.Enum == nil || slices.Contains(first.Enum, text))
	name := path[strings.LastIndexByte(path, '.')+1:] + ": "
	if strings.HasSuffix(path, "]") {
		name = "" // an item of a list
	}
	if !fits {
		return fmt.Sprintf("write %s{%s: …}; the names here are %s", name, first.Name, strings.Join(fieldNames(section), ", "))
	}
	return fmt.Sprintf("write %s{%s: %s}", name, first.Name, maskSecrets(text))
}

// name returns the text of a mapping's key.
func (d *decoder) name(path string, key ast.MapKeyNode) (string, bool) {
	switch k := key.(type) {
	case *ast.StringNode:
		return k.Value, true
	case *ast.MergeKeyNode:
		d.addNode(Join(path, "<<"), key, "merge keys are not supported", "write the settings out")
	case ast.ScalarNode:
		return k.GetToken().Value, true
	default:
		d.addNode(Join(path, "?"), key, "the name of a setting must be a plain word", "")
	}
	return "", false
}

// nameHint suggests a name of this section, or says which section has it.
func (d *decoder) nameHint(path, name string, t reflect.Type) string {
	names := fieldNames(t)
	if hint := cmp.Or(d.Renamed[Join(path, name)], d.Renamed[name]); hint != "" {
		return hint
	}
	if hint := DidYouMean(name, names); hint != "" {
		return hint
	}
	if path == "" {
		for _, f := range Fields(t) {
			if section := t.FieldByIndex(f.Index).Type; section.Kind() == reflect.Struct {
				if slices.Contains(fieldNames(section), name) {
					return "it belongs under " + f.Name
				}
			}
		}
	}
	return "the names here are " + strings.Join(names, ", ")
}

// value decodes the value of one setting.
func (d *decoder) value(path string, v reflect.Value, f Field, n ast.Node, key ast.Node) {
	switch {
	case v.Type() == rawType:
		if tree, ok := d.tree(path, n); ok {
			text, _ := json.Marshal(tree) // it can't fail: its numbers are valid
			v.SetBytes(text)
		}
	case n == nil || n.Type() == ast.NullType:
		// A section with only comments has no value. A setting without one was probably
		// forgotten.
		if !d.NoBlanks && (v.Kind() == reflect.Struct || v.Kind() == reflect.Slice && !f.Required) {
			return
		}
		d.addNode(path, key, f.Name+" has no value", "")
	case unsupported(n) != "":
		d.addNode(path, n, unsupported(n)+" are not supported", "write the value itself")
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		if v.Elem().Kind() == reflect.Struct {
			FillDefaults(v.Elem())
		}
		d.value(path, v.Elem(), f, n, key)
	case v.Kind() == reflect.Struct:
		d.section(path, v, n)
	case v.Kind() == reflect.Slice:
		d.list(path, v, f, n)
	default:
		d.scalar(path, v, f, n)
	}
}

// list decodes a sequence.
func (d *decoder) list(path string, v reflect.Value, f Field, n ast.Node) {
	var items []ast.Node
	sequence, ok := n.(*ast.SequenceNode)
	switch _, _, scalar := scalarText(n); {
	case ok:
		items = sequence.Values
	case f.Single && scalar:
		items = []ast.Node{n}
	case f.Pairs && isMapping(n):
		d.pairs(path, v, f, n)
		return
	default:
		d.wrongType(path, n, "a list")
		return
	}
	d.mark(path, n)
	if len(items) == 0 && !f.Distinct {
		return
	}
	list := reflect.MakeSlice(v.Type(), len(items), len(items))
	v.Set(list)
	for i, item := range items {
		element := list.Index(i)
		if element.Kind() == reflect.Struct {
			FillDefaults(element)
		}
		at := fmt.Sprintf("%s[%d]", path, i)
		if item == nil || item.Type() == ast.NullType {
			if item == nil {
				item = n
			}
			d.addNode(at, item, fmt.Sprintf("item %d of %s has no value", i, f.Name), "")
			continue
		}
		d.value(at, element, f.item(), item, n)
	}
}

// pairs decodes a mapping into a list of texts NAME=VALUE, in order.
func (d *decoder) pairs(path string, v reflect.Value, f Field, n ast.Node) {
	list := reflect.MakeSlice(v.Type(), 0, 4)
	d.members(path, n, func(name string, key, value ast.Node) {
		element := reflect.New(v.Type().Elem()).Elem()
		d.value(fmt.Sprintf("%s[%d]", path, list.Len()), element, f.item(), value, key)
		element.SetString(name + "=" + element.String())
		list = reflect.Append(list, element)
	})
	v.Set(list)
}

func isMapping(n ast.Node) bool {
	_, ok := n.(ast.MapNode)
	return ok
}

// scalar decodes a single value.
func (d *decoder) scalar(path string, v reflect.Value, f Field, n ast.Node) {
	text, isText, ok := scalarText(n)
	if !ok {
		d.wrongType(path, n, kindName(v, f))
		return
	}
	d.mark(path, n)
	used, written := false, text
	if d.Expand != nil {
		var fault *ValueError
		if text, used, fault = d.Expand(text); fault != nil {
			d.addNode(path, n, fault.Message, fault.Hint)
			return
		}
		if used {
			d.hide(text, written)
		}
	}
	if !used && !d.fits(path, v, f, n, isText) {
		return
	}
	if bad, is := errors.AsType[*ValueError](SetText(v, f, text)); is {
		d.addNode(path, n, bad.Message, bad.Hint)
	}
}

// tree turns any value into JSON.
func (d *decoder) tree(path string, n ast.Node) (v any, ok bool) {
	if n == nil {
		return nil, true
	}
	d.mark(path, n)
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
		d.members(path, n, func(name string, key, value ast.Node) {
			at := Join(path, name)
			if _, text := key.(*ast.StringNode); !text {
				d.addNode(at, key, "a name in JSON is text", "write it in quotes")
			}
			item, good := d.tree(at, value)
			object[name], ok = item, ok && good
			d.mark(at, key)
		})
		return object, ok
	}
	text, isText, ok := scalarText(n)
	switch what := unsupported(n); {
	case ok && isText:
		return text, true
	case ok && json.Valid([]byte(text)):
		return json.Number(text), true
	case what != "":
		d.addNode(path, n, what+" are not supported", "write the value itself")
	default:
		d.addNode(path, n, "this has no JSON form", "write text in quotes and numbers in decimal digits")
	}
	return nil, false
}

// fits reports an error if a value has another type than the setting, such as text instead of a
// number.
func (d *decoder) fits(path string, v reflect.Value, f Field, n ast.Node, isText bool) bool {
	text, _, _ := scalarText(n)
	quoted := false
	if s, ok := n.(*ast.StringNode); ok {
		quoted = s.Token.Type == token.SingleQuoteType || s.Token.Type == token.DoubleQuoteType
	}
	switch {
	case v.Type() == durationType || v.Type() == sizeType:
		return true
	case f.Secret != "" && !isText:
		d.addNode(path, n, "the value is not text", "write it in quotes")
		return false
	case v.Kind() == reflect.String && f.Numbers && n.Type() == ast.IntegerType:
		return true
	case v.Kind() == reflect.String && !isText && f.Enum == nil:
		d.addNode(path, n, fmt.Sprintf("%s is not text", text), "write "+strconv.Quote(text)+" with the quotes")
		return false
	case v.Kind() != reflect.String && quoted:
		d.addNode(path, n, fmt.Sprintf("%s is text, not %s", strconv.Quote(text), kindName(v, f)), "write it without quotes")
		return false
	}
	return true
}

// scalarText returns the text of a scalar as written, and whether YAML reads it as text.
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

func kindName(v reflect.Value, f Field) string {
	switch {
	case f.Enum != nil:
		return "one of " + strings.Join(f.Enum, ", ")
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
