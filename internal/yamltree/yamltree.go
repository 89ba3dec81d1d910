// Package yamltree parses the YAML files that people write for this module into
// syntax trees, in which every value knows its place.
package yamltree

import (
	"errors"
	"fmt"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Fault is why nothing can be said about the content of a file.
type Fault struct {
	// Line and Column count from 1.
	Line, Column int
	// Message says what is wrong, and Hint what to do, where there is something.
	Message, Hint string
}

// Limits bound what is parsed.
type Limits struct {
	// Bytes is how long a file may be.
	Bytes int
	// Unreasonable finds the token at which a file is too much for the parser, which
	// calls itself for everything inside of something, and says why.
	Unreasonable func(token.Tokens) (*token.Token, string)
}

// Parse returns the top of the one document of a file, or nil if the file is empty.
// Names that are given twice are left to who reads the tree.
func Parse(data []byte, limits Limits) (body ast.Node, fault *Fault) {
	defer func() {
		if r := recover(); r != nil { // some input makes the parser fail that way
			body, fault = nil, &Fault{1, 1, "the file can't be parsed as YAML", ""}
		}
	}()
	if len(data) > limits.Bytes {
		return nil, &Fault{1, 1, fmt.Sprintf("the file has %d bytes, more than %d", len(data), limits.Bytes), ""}
	}
	tokens := lexer.Tokenize(string(data))
	if t, why := limits.Unreasonable(tokens); t != nil {
		return nil, &Fault{t.Position.Line, t.Position.Column, why, ""}
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if syntax, is := errors.AsType[yaml.Error](err); is {
		fault := &Fault{1, 1, "not valid YAML: " + syntax.GetMessage(), ""}
		if t := syntax.GetToken(); t != nil && t.Position != nil {
			fault.Line, fault.Column = t.Position.Line, t.Position.Column
		}
		return nil, fault
	}
	if err != nil {
		return nil, &Fault{1, 1, "not valid YAML: " + err.Error(), ""}
	}
	for _, doc := range file.Docs {
		switch {
		case doc.Body == nil || doc.Body.Type() == ast.NullType:
		case body != nil:
			line, column := Place(doc.Body)
			return nil, &Fault{line, column, "a second document in one file", "put everything into one, without ---"}
		default:
			body = doc.Body
		}
	}
	return body, nil
}

// Place is where a node begins. A mapping's own token is its first colon.
func Place(n ast.Node) (line, column int) {
	switch x := n.(type) {
	case *ast.MappingNode:
		if !x.IsFlowStyle && len(x.Values) > 0 {
			return Place(x.Values[0].Key)
		}
	case *ast.MappingValueNode:
		return Place(x.Key)
	}
	if t := n.GetToken(); t != nil && t.Position != nil {
		return t.Position.Line, t.Position.Column
	}
	return 1, 1
}
