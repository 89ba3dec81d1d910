package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/semelhq/semel/internal/rig/clause"
)

// A claim is one clause named by one call of clause.Proves in the source.
type claim struct {
	id   string
	file string // slash-separated, relative to the module root
	line int    // where the call begins
	end  int    // where it ends; the runtime reports some line in between
}

// covers reports whether a record with this site comes from the claim's call.
func (c claim) covers(s clause.Site) bool {
	return s.File == c.file && c.line <= s.Line && s.Line <= c.end
}

// findClaims reads every Go file of the module in root. It skips directories that the go
// command ignores, and nested modules.
func findClaims(root, module string) ([]claim, error) {
	var claims []claim
	var faults []error
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			if path != root && ignored(path) {
				return filepath.SkipDir
			}
			return nil
		case !strings.HasSuffix(path, ".go"):
			return nil
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		found, err := claimsIn(filepath.ToSlash(name), src, module+"/internal/rig/clause")
		claims = append(claims, found...)
		faults = append(faults, err)
		return nil
	})
	return claims, errors.Join(err, errors.Join(faults...))
}

// ignored reports whether a directory isn't a package of the module.
func ignored(dir string) bool {
	name := filepath.Base(dir)
	if name == "testdata" || name == "vendor" || name[0] == '.' || name[0] == '_' {
		return true
	}
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil
}

// claimsIn returns the claims of one file. If clause.Proves is used in a way that hides
// from readers which clauses it names, that is an error.
func claimsIn(file string, src []byte, clausePath string) ([]claim, error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, file, src, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	name, err := importName(f, clausePath)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if name == "" {
		return nil, nil
	}
	var claims []claim
	var faults []error
	called := make(map[ast.Expr]bool)
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if !isProves(n.Fun, name) {
				break
			}
			called[n.Fun] = true
			at, end := fset.Position(n.Pos()), fset.Position(n.End())
			for _, arg := range n.Args[min(1, len(n.Args)):] {
				id, err := literal(arg)
				if err == nil {
					if _, ok := clause.Lookup(id); !ok {
						err = fmt.Errorf("unknown clause %q", id)
					}
				}
				if err != nil {
					faults = append(faults, fmt.Errorf("%s:%d: %w", file, at.Line, err))
					continue
				}
				claims = append(claims, claim{id: id, file: file, line: at.Line, end: end.Line})
			}
		case *ast.SelectorExpr:
			if isProves(n, name) && !called[n] {
				faults = append(faults, fmt.Errorf("%s:%d: %s.Proves must be called, not passed on",
					file, fset.Position(n.Pos()).Line, name))
			}
		}
		return true
	})
	return claims, errors.Join(faults...)
}

// importName is the name under which a file imports the clause package, or "" if it
// doesn't.
func importName(f *ast.File, clausePath string) (string, error) {
	for _, spec := range f.Imports {
		if path, err := strconv.Unquote(spec.Path.Value); err != nil || path != clausePath {
			continue
		}
		switch {
		case spec.Name == nil:
			return "clause", nil
		case spec.Name.Name == ".":
			return "", fmt.Errorf("import %s by a name", clausePath)
		default:
			return spec.Name.Name, nil
		}
	}
	return "", nil
}

func isProves(e ast.Expr, pkg string) bool {
	sel, ok := e.(*ast.SelectorExpr)
	if !ok || sel.Sel.Name != "Proves" {
		return false
	}
	x, ok := sel.X.(*ast.Ident)
	return ok && x.Name == pkg
}

func literal(e ast.Expr) (string, error) {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", errors.New("clause ids must be string literals")
	}
	return strconv.Unquote(lit.Value)
}
