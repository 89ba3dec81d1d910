package main

import (
	"fmt"
	"strings"
)

// A mutation is one small change of a source file.
type mutation struct {
	file string // slash-separated, relative to the root of the module
	// fn is the function that the change is in, with its receiver's type, or the variable.
	fn string
	// what names the change and shows it, in one line that is unique within the function.
	what string

	start, end int // the bytes that are replaced
	with       string
}

// key names a mutation in a way that doesn't depend on its line number.
func (m *mutation) key() string { return m.file + "\t" + m.fn + "\t" + m.what }

// apply returns the changed source.
func (m *mutation) apply(src []byte) []byte {
	out := make([]byte, 0, len(src)+len(m.with))
	out = append(out, src[:m.start]...)
	out = append(out, m.with...)
	return append(out, src[m.end:]...)
}

// line is where the change begins.
func (m *mutation) line(src []byte) int {
	return 1 + strings.Count(string(src[:m.start]), "\n")
}

// list collects the mutations of one file.
type list struct {
	file string
	src  []byte
	all  []mutation
	seen map[string]int // how many have the same function and text
}

// replaced stands for the replaced text in the description of a mutation.
const replaced = "$OLD"

// replace adds a mutation.
func (l *list) replace(fn string, start, end int, with, show string) {
	old := string(l.src[start:end])
	if old == with {
		return
	}
	show = strings.Replace(show, replaced, brief(old), 1)
	if n := l.seen[fn+"\t"+show]; n > 0 {
		l.seen[fn+"\t"+show]++
		show = fmt.Sprintf("%s #%d", show, n+1)
	} else {
		l.seen[fn+"\t"+show] = 1
	}
	l.all = append(l.all, mutation{l.file, fn, show, start, end, with})
}

// brief is source text in one short line.
func brief(s string) string {
	const limit = 60
	r := []rune(strings.Join(strings.Fields(s), " "))
	if len(r) > limit {
		r = append(r[:limit-1], '…')
	}
	return string(r)
}
