// Package strictyaml reads the YAML files that people write for this module into structs; JSON
// is YAML, too. An unknown, repeated or wrongly typed name, and a missing or disallowed value,
// is an error with its line and column. One run reports all errors.
package strictyaml

import (
	"errors"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
)

// parse returns the top of a file's only document, or nil if the file is empty or can't be
// parsed. It accepts duplicate names, which members reports.
func (d *decoder) parse(data []byte) (body ast.Node) {
	fault := func(line, column int, message, hint string) ast.Node {
		d.addAt("", line, column, message, hint)
		return nil
	}
	defer func() {
		if r := recover(); r != nil { // some input makes the parser panic
			body = fault(1, 1, "the file can't be parsed as YAML", "")
		}
	}()
	if len(data) > d.Bytes {
		return fault(1, 1, fmt.Sprintf("the file has %d bytes, more than %d", len(data), d.Bytes), "")
	}
	tokens := lexer.Tokenize(string(data))
	if t, why := unreasonable(tokens, d.Depth); t != nil {
		return fault(t.Position.Line, t.Position.Column, why, "")
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if syntax, is := errors.AsType[yaml.Error](err); is {
		line, column := 1, 1
		if t := syntax.GetToken(); t != nil && t.Position != nil {
			line, column = t.Position.Line, t.Position.Column
		}
		hint := ""
		if strings.Contains(syntax.GetMessage(), "'\t'") {
			hint = "indent with spaces, not with tabs"
		}
		return fault(line, column, "not valid YAML: "+syntax.GetMessage(), hint)
	}
	if err != nil {
		return fault(1, 1, "not valid YAML: "+err.Error(), "")
	}
	for _, doc := range file.Docs {
		switch {
		case doc.Body == nil || doc.Body.Type() == ast.NullType:
		case body != nil:
			line, column := place(doc.Body)
			return fault(line, column, "a second document in one file", "put everything into one, without ---")
		default:
			body = doc.Body
		}
	}
	return body
}

// place returns where a node begins. A mapping's own token is its first colon.
func place(n ast.Node) (line, column int) {
	switch x := n.(type) {
	case *ast.MappingNode:
		if !x.IsFlowStyle && len(x.Values) > 0 {
			return place(x.Values[0].Key)
		}
	case *ast.MappingValueNode:
		return place(x.Key)
	}
	if t := n.GetToken(); t != nil && t.Position != nil {
		return t.Position.Line, t.Position.Column
	}
	return 1, 1
}
