package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"slices"

	"github.com/semelhq/semel/internal/rig/clause"
)

// chosenFault is the environment variable that selects the fault of a process by its clause.
const chosenFault = "SEMEL_FAULT"

// selector is the file that a package with guarded faults gets.
const selector = `package %s

import "os"

// semelFault names the clause that this process breaks.
var semelFault = os.Getenv("` + chosenFault + `")
`

// A place is where a fault changes its file.
type place struct {
	body       *ast.BlockStmt // of the function; nil for a variable
	results    bool           // whether the function returns any
	start, end int            // of the function or variable
	at         int            // where the text that is replaced begins
}

// find finds the place of a fault in its file. The text that it replaces must stand in the
// function once, so that a change of the code can't move the fault elsewhere unseen.
func find(f *clause.Fault, file *ast.File, offset func(token.Pos) int, src []byte) (place, error) {
	p, ok := placeOf(f.Func, file, offset)
	if !ok {
		return place{}, fmt.Errorf("%s: %s has no %s", f.Clause, f.File, f.Func)
	}
	text := src[p.start:p.end]
	if n := bytes.Count(text, []byte(f.Old)); n != 1 {
		return place{}, fmt.Errorf("%s: %q stands %d times in %s of %s, want once", f.Clause, f.Old, n, f.Func, f.File)
	}
	p.at = p.start + bytes.Index(text, []byte(f.Old))
	return p, nil
}

// placeOf finds a function or a variable of the package by its name. The name * means the file.
func placeOf(name string, file *ast.File, offset func(token.Pos) int) (place, bool) {
	if name == "*" {
		return place{end: offset(file.FileEnd)}, true
	}
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			fn := d.Name.Name
			if d.Recv != nil {
				fn = receiver(d.Recv.List[0].Type) + "." + fn
			}
			if fn == name && d.Body != nil {
				return place{body: d.Body, results: d.Type.Results != nil, start: offset(d.Body.Pos()), end: offset(d.Body.End())}, true
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if v, ok := spec.(*ast.ValueSpec); ok && v.Names[0].Name == name {
					return place{start: offset(v.Pos()), end: offset(v.End())}, true
				}
			}
		}
	}
	return place{}, false
}

// guardable reports whether a function can have a second body under a condition.
func (p *place) guardable() bool {
	if p.body == nil {
		return false
	}
	labels := false
	ast.Inspect(p.body, func(n ast.Node) bool {
		_, is := n.(*ast.LabeledStmt)
		labels = labels || is
		return true
	})
	return !labels
}

// A source is a file with all its faults, each in its function under a condition, and the faults
// that need a build of their own because the language has no such condition for them.
type source struct {
	pkg   string
	text  []byte
	alone map[string][]byte // the whole file with the fault of a clause
}

// guard puts faults into a file. A process with chosenFault in its environment has the fault of
// that clause, any other has none.
func guard(src []byte, faults []clause.Fault) (source, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, faults[0].File, src, parser.SkipObjectResolution)
	if err != nil {
		return source{}, err
	}
	offset := func(p token.Pos) int { return int(p) - fset.File(file.FileStart).Base() }
	out := source{pkg: file.Name.Name, alone: map[string][]byte{}}
	type insertion struct {
		at   int
		text string
	}
	var guarded []insertion
	for i := range faults {
		f := &faults[i]
		p, err := find(f, file, offset, src)
		if err != nil {
			return source{}, err
		}
		if !p.guardable() {
			out.alone[f.Clause] = slices.Concat(src[:p.at], []byte(f.New), src[p.at+len(f.Old):])
			continue
		}
		body := string(slices.Concat(src[p.start+1:p.at], []byte(f.New), src[p.at+len(f.Old):p.end-1]))
		if !p.results {
			body += "\nreturn\n"
		}
		guarded = append(guarded, insertion{p.start + 1, fmt.Sprintf("\nif semelFault == %q {%s}\n", f.Clause, body)})
	}
	// From the end of the file, so that earlier places stay where they are.
	slices.SortStableFunc(guarded, func(a, b insertion) int { return b.at - a.at })
	out.text = slices.Clone(src)
	for _, in := range guarded {
		out.text = slices.Insert(out.text, in.at, []byte(in.text)...)
	}
	return out, nil
}

// selectorName is the file beside a guarded one that reads the variable.
func selectorName(file string) string { return path.Join(path.Dir(file), "semelfault.go") }
