package evidence_test

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"testing"

	"github.com/semelhq/semel/evidence"
)

// TestSchemaHasEveryDurability: an entry may carry any level that a store reports, so
// the schema accepts all of them.
func TestSchemaHasEveryDurability(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "../store/durability.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var levels []string
	ast.Inspect(f, func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if typ, ok := v.Type.(*ast.Ident); ok && typ.Name == "Level" {
			level, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			levels = append(levels, level)
		}
		return true
	})
	var schema struct {
		Properties struct {
			Payload struct {
				Properties struct {
					Durability struct {
						Enum []string `json:"enum"`
					} `json:"durability"`
				} `json:"properties"`
			} `json:"payload"`
		} `json:"properties"`
	}
	if err := json.Unmarshal(evidence.Schema, &schema); err != nil {
		t.Fatal(err)
	}
	if got := schema.Properties.Payload.Properties.Durability.Enum; !slices.Equal(got, levels) {
		t.Errorf("the schema has the levels %q, want %q", got, levels)
	}
}
