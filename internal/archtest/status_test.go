package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/semelhq/semel/internal/rig/clause"
)

// belowDoors are the packages that decide and keep, and that no protocol's word may reach.
func belowDoors(rel string) bool {
	return rel == "." || rel == "store" || under(rel, "store/codec") || under(rel, concreteStores...)
}

// statusFaults finds status codes of HTTP in a file: names such as HTTPStatus or StatusCode,
// and the numbers of errors, such as 409, unless they are a part of a calculation, as in
// 500 * time.Millisecond.
func statusFaults(name string, file *ast.File, at *token.FileSet) []string {
	var faults []string
	sums := map[ast.Expr]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BinaryExpr:
			switch n.Op {
			case token.EQL, token.NEQ, token.LSS, token.LEQ, token.GTR, token.GEQ:
			default:
				sums[n.X], sums[n.Y] = true, true
			}
		case *ast.Ident:
			lower := strings.ToLower(n.Name)
			if strings.Contains(lower, "http") || strings.Contains(lower, "statuscode") {
				faults = append(faults, fmt.Sprintf("%s:%d: %s: status codes are chosen by doors", name, at.Position(n.Pos()).Line, n.Name))
			}
		case *ast.BasicLit:
			if v, err := strconv.Atoi(n.Value); err == nil && n.Kind == token.INT && v >= 400 && http.StatusText(v) != "" && !sums[n] {
				faults = append(faults, fmt.Sprintf("%s:%d: %d looks like a status code, which doors choose", name, at.Position(n.Pos()).Line, v))
			}
		}
		return true
	})
	return faults
}

// TestStatusCodesAreTheDoors: what the engine and the stores say has codes of their own,
// and nothing in it is meant for one protocol.
func TestStatusCodesAreTheDoors(t *testing.T) {
	clause.Proves(t, "CORE-BOUND.1", "CORE-BOUND.2")
	looked := 0
	for _, p := range packages(t) {
		if !belowDoors(p.rel()) {
			continue
		}
		for _, name := range p.GoFiles {
			at := token.NewFileSet()
			file, err := parser.ParseFile(at, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			looked++
			report(t, statusFaults(filepath.Join(p.rel(), name), file, at))
		}
	}
	if looked < 100 {
		t.Errorf("%d files were looked at", looked)
	}
}

func TestStatusRuleFinds(t *testing.T) {
	for _, test := range []struct {
		code string
		want []string
	}{
		{"type Error struct{ HTTPStatus int }", []string{"HTTPStatus"}},
		{"func f(r response) int { return r.StatusCode }", []string{"StatusCode"}},
		{"func f(c string) int { switch c { case conflict: return 409 }; return 0 }", []string{"409 looks"}},
		{"var m = map[string]int{conflict: 422}", []string{"422 looks"}},
		{"func f(n int) bool { return n == 503 }", []string{"503 looks"}},
		{"const pause = 500 * time.Millisecond; const few = 200", nil},
	} {
		at := token.NewFileSet()
		file, err := parser.ParseFile(at, "x.go", "package x\n"+test.code, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		wantFaults(t, statusFaults("x.go", file, at), test.want...)
	}
}
