package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// packageCommentFaults finds packages without a package comment.
func packageCommentFaults(pkgs []pkg) []string {
	var faults []string
	for _, p := range pkgs {
		if p.Doc == "" {
			faults = append(faults, p.rel()+" has no package comment")
		}
	}
	return faults
}

// exportedFaults finds exported declarations and interface methods of one file without a
// comment. A comment on a group of constants or variables covers all of them, and one on
// a struct covers its fields.
func exportedFaults(name string, src []byte) ([]string, error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, name, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var faults []string
	check := func(what string, ids []*ast.Ident, comments ...*ast.CommentGroup) {
		if slices.ContainsFunc(comments, func(c *ast.CommentGroup) bool { return c.Text() != "" }) {
			return
		}
		for _, id := range ids {
			if id.IsExported() {
				faults = append(faults, fmt.Sprintf("%s:%d: %s%s has no comment", name, fset.Position(id.Pos()).Line, what, id.Name))
			}
		}
	}
	for _, decl := range f.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if recv := receiver(d); recv == "" {
				check("", []*ast.Ident{d.Name}, d.Doc)
			} else if ast.IsExported(recv) {
				check(recv+".", []*ast.Ident{d.Name}, d.Doc)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.ValueSpec:
					check("", s.Names, d.Doc, s.Doc, s.Comment)
				case *ast.TypeSpec:
					check("", []*ast.Ident{s.Name}, d.Doc, s.Doc, s.Comment)
					if i, ok := s.Type.(*ast.InterfaceType); ok && s.Name.IsExported() {
						for _, m := range i.Methods.List {
							check(s.Name.Name+".", m.Names, m.Doc, m.Comment)
						}
					}
				}
			}
		}
	}
	return faults, nil
}

// receiver is the name of the type that a method belongs to, "" for a function.
func receiver(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return ""
	}
	e := d.Recv.List[0].Type
	for {
		switch x := e.(type) {
		case *ast.StarExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.IndexListExpr:
			e = x.X
		case *ast.Ident:
			return x.Name
		default:
			return ""
		}
	}
}

func TestComments(t *testing.T) {
	t.Run("every package has a package comment", func(t *testing.T) {
		report(t, packageCommentFaults(packages(t)))
	})
	t.Run("everything exported has a doc comment", func(t *testing.T) {
		for _, p := range packages(t) {
			if p.Name == "main" {
				continue // nobody can import what a command exports
			}
			for _, file := range p.GoFiles {
				src, err := os.ReadFile(filepath.Join(p.Dir, file))
				if err != nil {
					t.Fatal(err)
				}
				faults, err := exportedFaults(p.rel()+"/"+file, src)
				if err != nil {
					t.Fatal(err)
				}
				report(t, faults)
			}
		}
	})
}

func TestCommentRulesFind(t *testing.T) {
	t.Run("packages without a comment", func(t *testing.T) {
		wantFaults(t, packageCommentFaults([]pkg{{ImportPath: modulePath, Doc: "Package semel."}, {ImportPath: modulePath + "/client"}}),
			"client has no package comment")
	})
	t.Run("exported identifiers without a comment", func(t *testing.T) {
		faults, err := exportedFaults("p.go", []byte(`package p

// A group.
const (
	A = 1
	B = 2
)

var C, d = 1, 2
var E = 3 // E is three.

func F() {}

// G has one.
func G() {}

// T has one.
type T[K any] struct {
	H int
}

func (*T[K]) M() {}
func (*T[K]) m() {}

type u struct{ N int }

func (u) O() {}

// V has one.
type V interface {
	P()
}

type W int
`))
		if err != nil {
			t.Fatal(err)
		}
		wantFaults(t, faults, ":9: C has", ":12: F has", ":22: T.M has", ":31: V.P has", ":34: W has")
	})
}
