package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// A mutation is one small change of a source file, and what is needed to judge the mutant.
type mutation struct {
	target *target
	file   string // slash-separated, relative to the root of the module
	src    []byte // the unchanged file
	// fn is the function that the change is in, with its receiver's type, or the variable.
	fn string
	// what names the change and shows it, in one line that is unique within the function.
	what string

	start, end int // the bytes that are replaced
	with       string
}

// key names a mutation in a way that doesn't depend on its line number.
func (m *mutation) key() string { return m.file + "\t" + m.fn + "\t" + m.what }

// String is key with the line where the change begins.
func (m *mutation) String() string {
	line := 1 + bytes.Count(m.src[:m.start], []byte("\n"))
	return fmt.Sprintf("%s:%d\t%s\t%s", m.file, line, m.fn, m.what)
}

// apply returns the changed source.
func (m *mutation) apply() []byte {
	return slices.Concat(m.src[:m.start], []byte(m.with), m.src[m.end:])
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
	l.all = append(l.all, mutation{file: l.file, src: l.src, fn: fn, what: show, start: start, end: end, with: with})
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
