package strictyaml

import (
	"cmp"
	"slices"
	"strings"
)

// Format describes what is wrong with a text, and says what to write instead. Both are empty
// for a good text.
type Format func(text string) (fault, hint string)

// Report collects errors, one for each path: the consequences of a wrong value are noise. It
// isn't safe for concurrent use.
type Report struct {
	// File is the name of the file in errors.
	File string
	// NoBlanks refuses members without a value. Otherwise a text may be empty, and a section or
	// list with only comments counts as absent.
	NoBlanks bool
	// Formats are the formats that tags may name.
	Formats map[string]Format
	// Origins says where each value was written.
	Origins *Origins
	// Faulty has the paths with an error.
	Faulty map[string]bool
	// List has the errors in the order in which they were found.
	List Errors

	lines  []string // the file's, shown with errors
	hidden []hidden // values that errors don't show
	inFile bool     // an error without a place is in line 1
}

// NewReport returns an empty report about a file, or about values that came from
// elsewhere.
func NewReport(file string) *Report {
	r := &Report{File: file, Origins: &Origins{At: map[string]Origin{}}, Faulty: map[string]bool{}}
	r.Origins.report = r
	return r
}

// ShowLines makes errors show their line of the file, with secrets masked.
func (r *Report) ShowLines(data []byte) { r.lines = strings.Split(string(data), "\n") }

// addAt reports an error at a place in the file.
func (r *Report) addAt(path string, line, column int, message, hint string) {
	if r.Faulty[path] && path != "" {
		return
	}
	e := &Error{File: r.File, Line: max(line, 1), Column: max(column, 1), Path: path, Message: message, Suggestion: hint}
	if e.Line <= len(r.lines) {
		e.Source = strings.TrimRight(maskSecrets(r.lines[e.Line-1]), " \t\r")
	}
	r.put(e)
}

func (r *Report) put(e *Error) {
	for _, h := range r.hidden {
		e.Message, e.Suggestion = h.mask(e.Message), h.mask(e.Suggestion)
	}
	r.Faulty[e.Path] = true
	r.List = append(r.List, e)
}

// Add reports an error of a setting, at the place where the setting came from or, if it wasn't
// written, where the section around it did.
func (r *Report) Add(path, message, hint string) {
	if r.Faulty[path] {
		return
	}
	for at := path; ; at = Parent(at) {
		origin, known := r.Origins.At[at]
		switch {
		case known && origin.Line > 0:
			r.addAt(path, origin.Line, origin.Column, message, hint)
		case known && origin.Kind != FromDefault:
			r.put(&Error{From: origin.String(), Path: path, Message: message, Suggestion: hint})
		case at != "":
			continue
		case r.inFile:
			r.addAt(path, 1, 1, message, hint)
		default:
			r.put(&Error{File: r.File, Path: path, Message: message, Suggestion: hint})
		}
		return
	}
}

// Sorted returns the errors in the order of the file, then the ones from elsewhere, by their
// paths.
func (r *Report) Sorted() Errors {
	slices.SortStableFunc(r.List, func(a, b *Error) int {
		return cmp.Or(
			btoi(a.Line == 0)-btoi(b.Line == 0), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column),
			cmp.Compare(a.From, b.From), cmp.Compare(a.Path, b.Path))
	})
	return r.List
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
