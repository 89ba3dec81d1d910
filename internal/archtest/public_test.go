package archtest

import (
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write "+publicList+" and docs/threats.md as they have to be")

// publicList has every name that others can use: each is a promise.
const publicList = "public.txt"

// TestPublicNames: a name that is added, renamed or removed shows in a review, and isn't
// public by accident. After a change that is meant to be:
//
//	go test ./internal/archtest -run TestPublicNames -update
func TestPublicNames(t *testing.T) {
	var text strings.Builder
	for _, p := range packages(t) {
		if p.Name == "main" || strings.Contains("/"+p.rel()+"/", "/internal/") || under(p.rel(), "bench", "examples", "cmd") {
			continue
		}
		names, err := publicNames(p)
		if err != nil {
			t.Fatal(err)
		}
		text.WriteString(p.rel() + "\n")
		for _, name := range slices.Sorted(maps.Keys(names)) {
			text.WriteString(strings.TrimRight("  "+name+" "+strings.Join(slices.Sorted(slices.Values(names[name])), " "), " ") + "\n")
		}
	}
	if *update {
		if err := os.WriteFile(publicList, []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(publicList)
	if err != nil {
		t.Fatal(err)
	}
	now, listed := strings.Split(text.String(), "\n"), strings.Split(string(want), "\n")
	for _, line := range now {
		if !slices.Contains(listed, line) {
			t.Errorf("%s doesn't have %q", publicList, line)
		}
	}
	for _, line := range listed {
		if !slices.Contains(now, line) {
			t.Errorf("%s has %q, which is gone or has changed", publicList, line)
		}
	}
}

// publicNames returns the exported names of a package, and for types those of their methods.
func publicNames(p pkg) (map[string][]string, error) {
	names := map[string][]string{}
	for _, file := range p.GoFiles {
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, file), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, d := range f.Decls {
			addPublic(names, d)
		}
	}
	maps.DeleteFunc(names, func(name string, _ []string) bool { return !ast.IsExported(name) })
	return names, nil
}

func addPublic(names map[string][]string, d ast.Decl) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		switch {
		case d.Recv == nil:
			names[d.Name.Name] = nil
		case d.Name.IsExported():
			of := receiverName(d.Recv.List[0].Type)
			names[of] = append(names[of], d.Name.Name)
		}
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				names[s.Name.Name] = append(names[s.Name.Name], interfaceMethods(s.Type)...)
			case *ast.ValueSpec:
				for _, id := range s.Names {
					names[id.Name] = nil
				}
			}
		}
	}
}

func interfaceMethods(t ast.Expr) (names []string) {
	if it, ok := t.(*ast.InterfaceType); ok {
		for _, m := range it.Methods.List {
			for _, id := range m.Names {
				if id.IsExported() {
					names = append(names, id.Name)
				}
			}
		}
	}
	return names
}

// receiverName is the name of a method's type.
func receiverName(t ast.Expr) string {
	switch t := t.(type) {
	case *ast.StarExpr:
		return receiverName(t.X)
	case *ast.IndexExpr:
		return receiverName(t.X)
	case *ast.IndexListExpr:
		return receiverName(t.X)
	case *ast.Ident:
		return t.Name
	}
	return ""
}
