package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
)

// switchFaults finds a switch on a decision: a decision that it doesn't know falls through.
func switchFaults(name string, file *ast.File, at *token.FileSet) []string {
	var faults []string
	ast.Inspect(file, func(n ast.Node) bool {
		s, ok := n.(*ast.SwitchStmt)
		if !ok {
			return true
		}
		field, ok := s.Tag.(*ast.SelectorExpr)
		local, plain := s.Tag.(*ast.Ident)
		if ok && strings.HasSuffix(field.Sel.Name, "Decision") || plain && strings.EqualFold(local.Name, "decision") {
			faults = append(faults, fmt.Sprintf("%s:%d: a switch on a decision: refuse by its code, which package door explains", name, at.Position(s.Pos()).Line))
		}
		return true
	})
	return faults
}

// constantsOf returns the values of the constants of a type that a file declares.
func constantsOf(file *ast.File, typeName string) []string {
	var values []string
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || spec.Type == nil || len(spec.Values) != 1 {
			return true
		}
		name := ""
		switch typ := spec.Type.(type) {
		case *ast.Ident:
			name = typ.Name
		case *ast.SelectorExpr:
			name = typ.Sel.Name
		}
		if lit, ok := spec.Values[0].(*ast.BasicLit); ok && name == typeName {
			if text, err := strconv.Unquote(lit.Value); err == nil {
				values = append(values, text)
			}
		}
		return true
	})
	return values
}

// TestDecisionsAndCodesAreListed: whatever is declared is in the lists that doors are tested
// by, and only the root, where decisions are made, and the evidence log, which writes down
// every one, tell them apart.
func TestDecisionsAndCodesAreListed(t *testing.T) {
	decisions, codes := 0, 0
	for _, p := range packages(t) {
		for _, name := range p.GoFiles {
			at := token.NewFileSet()
			file, err := parser.ParseFile(at, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			rel := filepath.Join(p.rel(), name)
			if p.rel() != "." && p.rel() != "evidence" && !under(p.rel(), testSupport...) {
				report(t, switchFaults(rel, file, at))
			}
			if p.rel() == "." {
				for _, d := range constantsOf(file, "Decision") {
					if decisions++; !slices.Contains(semel.Decisions(), semel.Decision(d)) {
						t.Errorf("%s: Decisions lacks %s", rel, d)
					}
				}
			}
			if p.rel() == "." || p.rel() == "store" || p.rel() == "door" {
				for _, c := range constantsOf(file, "Code") {
					codes++
					if _, ok := door.Lookup(semel.Code(c)); !ok {
						t.Errorf("%s: no meaning in package door for %s", rel, c)
					}
					if p.rel() != "door" && !slices.Contains(semel.Codes(), semel.Code(c)) {
						t.Errorf("%s: Codes lacks %s", rel, c)
					}
				}
			}
		}
	}
	if decisions != len(semel.Decisions()) || codes != len(door.Meanings()) {
		t.Errorf("found %d decisions of %d and %d codes of %d", decisions, len(semel.Decisions()), codes, len(door.Meanings()))
	}
}

func TestDecisionRuleFinds(t *testing.T) {
	for code, want := range map[string][]string{
		"func f(ans *semel.Answer) { switch ans.Decision { case semel.Held: } }": {"a switch on a decision"},
		"func f(decision string) { switch decision { } }":                        {"a switch on a decision"},
		"func f(c semel.Code) { switch c { } }":                                  nil,
	} {
		at := token.NewFileSet()
		file, err := parser.ParseFile(at, "x.go", "package x\n"+code, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		wantFaults(t, switchFaults("x.go", file, at), want...)
	}
}
