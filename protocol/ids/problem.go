package ids

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Problem is one thing that is wrong with a registry.
type Problem struct {
	// File, Line and Column say where; lines and columns count from 1, and columns
	// are characters. Both are 0 in a registry that was made in Go, see [NewRegistry].
	File   string `json:"file"`
	Line   int    `json:"line"`
	Column int    `json:"column"`
	// Path names the setting, such as "commands[2].window".
	Path string `json:"path,omitempty"`
	// Command is the kind of command that it belongs to, where that is known.
	Command string `json:"command,omitempty"`
	// Message says what is wrong, and Suggestion what to write instead.
	Message    string `json:"message"`
	Suggestion string `json:"suggestion,omitempty"`
}

// Error is one line.
func (p *Problem) Error() string {
	text := p.File + ": "
	if p.Line > 0 {
		text = fmt.Sprintf("%s:%d:%d: ", p.File, p.Line, p.Column)
	}
	if p.Path != "" {
		text += p.Path + ": "
	}
	text += p.Message
	if p.Suggestion != "" {
		text += "; " + p.Suggestion
	}
	return text
}

// Problems is everything that is wrong with a registry, in the order of the file or
// of the commands.
type Problems []*Problem

// Error has a line for each problem.
func (ps Problems) Error() string {
	var lines []string
	for _, p := range ps {
		lines = append(lines, p.Error())
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the single problems.
func (ps Problems) Unwrap() []error {
	var list []error
	for _, p := range ps {
		list = append(list, p)
	}
	return list
}

// position is a place in the file.
type position struct{ line, column int }

// report collects problems. It says one thing about each path: what follows from a
// wrong value is noise.
type report struct {
	file   string
	inGo   bool                // there are no lines
	at     map[string]position // of every value that was read, by its path
	faulty map[string]bool
	list   Problems
}

func newReport(file string) *report {
	return &report{file: file, at: map[string]position{}, faulty: map[string]bool{}}
}

// addAt reports a problem at a place.
func (r *report) addAt(pos position, path, message, suggestion string) {
	if path != "" && r.faulty[path] {
		return
	}
	r.faulty[path] = true
	if !r.inGo {
		pos = position{max(pos.line, 1), max(pos.column, 1)}
	}
	r.list = append(r.list, &Problem{File: r.file, Line: pos.line, Column: pos.column, Path: path, Message: message, Suggestion: suggestion})
}

// add reports a problem of a setting, at its place; for one that was not written that
// is the section around it.
func (r *report) add(path, message, suggestion string) {
	for at := path; ; at = at[:max(strings.LastIndexAny(at, ".["), 0)] {
		if pos, known := r.at[at]; known || at == "" {
			r.addAt(pos, path, message, suggestion)
			return
		}
	}
}

// sorted returns the problems in the order of the file; without one they stay in the
// order in which they were found.
func (r *report) sorted() Problems {
	if r.inGo {
		return r.list
	}
	slices.SortStableFunc(r.list, func(a, b *Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), cmp.Compare(a.Path, b.Path))
	})
	return r.list
}
