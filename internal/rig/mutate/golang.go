package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
)

// mutationsOf finds all mutations of a file of Go source, in the order of the text.
func mutationsOf(file string, src []byte) ([]mutation, error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, file, src, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	g := &golang{list: list{file: file, src: src, seen: map[string]int{}}, base: fset.File(f.FileStart).Base()}
	for _, decl := range f.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Body != nil {
				g.function(d)
			}
		case *ast.GenDecl:
			g.texts(d)
		}
	}
	return g.all, nil
}

// golang finds the mutations of one file.
type golang struct {
	list
	base int
	fn   string // that is being looked at
}

func (g *golang) offset(p token.Pos) int { return int(p) - g.base }

func (g *golang) text(n ast.Node) string {
	return string(g.src[g.offset(n.Pos()):g.offset(n.End())])
}

// change replaces a node.
func (g *golang) change(n ast.Node, with, show string) {
	g.replace(g.fn, g.offset(n.Pos()), g.offset(n.End()), with, show)
}

// texts mutates Lua and SQL in variables and constants of the package.
func (g *golang) texts(d *ast.GenDecl) {
	for _, spec := range d.Specs {
		v, ok := spec.(*ast.ValueSpec)
		if !ok {
			continue
		}
		g.fn = v.Names[0].Name
		ast.Inspect(v, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				g.literal(lit)
			}
			return true
		})
	}
}

// literal mutates a string literal that is Lua or SQL.
func (g *golang) literal(lit *ast.BasicLit) {
	g.list.text(g.fn, g.offset(lit.Pos())+1, g.offset(lit.End())-1)
}

func (g *golang) function(d *ast.FuncDecl) {
	g.fn = d.Name.Name
	if d.Recv != nil {
		g.fn = receiver(d.Recv.List[0].Type) + "." + g.fn
	}
	ast.PreorderStack(d, nil, func(n ast.Node, stack []ast.Node) bool {
		switch n := n.(type) {
		case *ast.IfStmt:
			g.negate(n.Cond)
		case *ast.CaseClause:
			g.clause(n, stack)
		case *ast.CommClause:
			g.drop(n, "drop "+replaced)
		case *ast.BinaryExpr:
			g.operator(n)
		case *ast.UnaryExpr:
			if n.Op == token.NOT {
				g.change(n, g.text(n.X), "drop the ! of "+replaced)
			}
		case *ast.BasicLit:
			g.constant(n)
		case *ast.Ident:
			g.name(n, stack)
		case *ast.CompositeLit:
			g.fields(n)
		case *ast.ReturnStmt:
			g.result(n, stack)
		}
		if s, ok := n.(ast.Stmt); ok && inList(s, stack) {
			g.statement(s, stack)
		}
		return true
	})
}

func receiver(e ast.Expr) string {
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
			return "?"
		}
	}
}

// negate inverts a condition, unless another mutation does just that.
func (g *golang) negate(cond ast.Expr) {
	switch c := cond.(type) {
	case *ast.UnaryExpr:
		if c.Op == token.NOT {
			return
		}
	case *ast.BinaryExpr:
		if c.Op == token.EQL || c.Op == token.NEQ {
			return
		}
	}
	g.change(cond, "!("+g.text(cond)+")", "negate "+replaced)
}

// clause drops a case, and inverts its condition if it has one.
func (g *golang) clause(c *ast.CaseClause, stack []ast.Node) {
	g.drop(c, "drop "+replaced)
	sw, ok := stack[len(stack)-2].(*ast.SwitchStmt)
	if ok && sw.Tag == nil && len(c.List) == 1 {
		g.negate(c.List[0])
	}
}

// swaps are operators with their replacements.
var swaps = map[token.Token]token.Token{
	token.EQL: token.NEQ, token.NEQ: token.EQL,
	token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR,
	token.LAND: token.LOR, token.LOR: token.LAND,
	token.ADD: token.SUB, token.SUB: token.ADD, token.MUL: token.QUO, token.QUO: token.MUL,
	token.AND: token.OR, token.OR: token.AND,
}

func (g *golang) operator(b *ast.BinaryExpr) {
	to, ok := swaps[b.Op]
	if !ok || b.Op == token.ADD && (isText(b.X) || isText(b.Y)) {
		return
	}
	start := g.offset(b.OpPos)
	g.replace(g.fn, start, start+len(b.Op.String()), to.String(), b.Op.String()+" becomes "+to.String()+" in "+brief(g.text(b)))
}

func isText(e ast.Expr) bool {
	switch x := e.(type) {
	case *ast.BasicLit:
		return x.Kind == token.STRING
	case *ast.BinaryExpr:
		return isText(x.X) || isText(x.Y)
	}
	return false
}

// constant is off by one, or is a text of another language.
func (g *golang) constant(lit *ast.BasicLit) {
	switch lit.Kind {
	case token.INT:
		if n, err := strconv.ParseInt(lit.Value, 0, 64); err == nil {
			g.change(lit, strconv.FormatInt(n+1, 10), replaced+" becomes "+strconv.FormatInt(n+1, 10))
		}
	case token.STRING:
		g.literal(lit)
	}
}

// words are names with their replacements.
var words = map[string]string{"true": "false", "false": "true", "min": "max", "max": "min"}

func (g *golang) name(id *ast.Ident, stack []ast.Node) {
	to, ok := words[id.Name]
	if !ok {
		return
	}
	if call, isCall := stack[len(stack)-1].(*ast.CallExpr); (id.Name == "min" || id.Name == "max") && (!isCall || call.Fun != id) {
		return
	}
	g.change(id, to, replaced+" becomes "+to)
}

// fields leaves out one field of a composite literal.
func (g *golang) fields(lit *ast.CompositeLit) {
	for i, e := range lit.Elts {
		kv, ok := e.(*ast.KeyValueExpr)
		if !ok {
			return
		}
		name, named := kv.Key.(*ast.Ident)
		if !named {
			return // not a struct
		}
		if name.Name == "Message" {
			continue // words for people
		}
		start, end := g.offset(e.Pos()), g.offset(e.End())
		if i+1 < len(lit.Elts) {
			end = g.offset(lit.Elts[i+1].Pos())
		} else if i > 0 {
			start = g.offset(lit.Elts[i-1].End())
		}
		g.replace(g.fn, start, end, "", "drop the field "+brief(g.text(e)))
	}
}

// result returns nil in place of an error.
func (g *golang) result(r *ast.ReturnStmt, stack []ast.Node) {
	if len(r.Results) == 0 || !returnsError(stack) {
		return
	}
	last := r.Results[len(r.Results)-1]
	if id, ok := last.(*ast.Ident); ok && id.Name == "nil" {
		return
	}
	if _, ok := last.(*ast.CallExpr); ok && len(r.Results) == 1 {
		return // which may return more than one, or do what matters
	}
	g.change(last, "nil", "return nil instead of "+replaced)
}

// returnsError reports whether the innermost function returns an error last.
func returnsError(stack []ast.Node) bool {
	for i := len(stack) - 1; i >= 0; i-- {
		var t *ast.FuncType
		switch f := stack[i].(type) {
		case *ast.FuncDecl:
			t = f.Type
		case *ast.FuncLit:
			t = f.Type
		default:
			continue
		}
		if t.Results == nil {
			return false
		}
		id, ok := t.Results.List[len(t.Results.List)-1].Type.(*ast.Ident)
		return ok && id.Name == "error"
	}
	return false
}

// inList reports whether a statement is an element of a block.
func inList(s ast.Stmt, stack []ast.Node) bool {
	switch parent := stack[len(stack)-1].(type) {
	case *ast.BlockStmt, *ast.CaseClause:
		return true
	case *ast.CommClause:
		return parent.Comm != s
	}
	return false
}

// statement drops a statement that the compiler doesn't need.
func (g *golang) statement(s ast.Stmt, stack []ast.Node) {
	switch s := s.(type) {
	case *ast.ExprStmt:
		if !locks(s.X) {
			g.drop(s, "drop "+replaced)
		}
	case *ast.DeferStmt:
		if !locks(s.Call) {
			g.drop(s, "drop "+replaced)
		}
	case *ast.AssignStmt:
		if s.Tok != token.DEFINE {
			g.drop(s, "drop "+replaced)
		}
	case *ast.GoStmt, *ast.IncDecStmt, *ast.SendStmt:
		g.drop(s, "drop "+replaced)
	case *ast.ReturnStmt:
		if early(s, stack) {
			g.drop(s, "drop the early "+replaced)
		}
	case *ast.BranchStmt:
		switch {
		case s.Label != nil:
		case s.Tok == token.BREAK:
			g.change(s, "continue", replaced+" becomes continue")
		case s.Tok == token.CONTINUE:
			g.change(s, "break", replaced+" becomes break")
		}
	}
}

func (g *golang) drop(n ast.Node, show string) { g.change(n, "", show) }

// early reports whether statements of the function may follow a return.
func early(s *ast.ReturnStmt, stack []ast.Node) bool {
	_, isBlock := stack[len(stack)-1].(*ast.BlockStmt)
	if !isBlock || len(stack) < 2 {
		return false
	}
	_, inIf := stack[len(stack)-2].(*ast.IfStmt)
	return inIf
}

// locks reports whether a call locks or unlocks a mutex. Without it, only chance or the race
// detector makes a test fail, or the test hangs for its whole time limit.
func locks(e ast.Expr) bool {
	call, ok := e.(*ast.CallExpr)
	if !ok {
		return false
	}
	sel, ok := call.Fun.(*ast.SelectorExpr)
	return ok && strings.HasSuffix(strings.ToLower(sel.Sel.Name), "lock")
}
