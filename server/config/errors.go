package config

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Error is one thing that is wrong with the configuration.
type Error struct {
	// File, Line and Column say where it is; lines and columns count from 1, and
	// columns are characters. They are empty for a setting that came from
	// elsewhere.
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"`
	Column int    `json:"column,omitempty"`
	// From is the variable or the flag that the setting came from, if it was not
	// the file, such as "env SEMEL_STORE_URL".
	From string `json:"from,omitempty"`
	// Path names the setting, such as "routes[2].mode".
	Path string `json:"path,omitempty"`
	// Message says what is wrong.
	Message string `json:"message"`
	// Suggestion says what to write instead, where that is known.
	Suggestion string `json:"suggestion,omitempty"`
	// Source is the line of the file, with secrets masked.
	Source string `json:"source,omitempty"`
}

// Error is one line, without the source.
func (e *Error) Error() string {
	var parts []string
	switch {
	case e.Line > 0:
		parts = append(parts, fmt.Sprintf("%s:%d:%d", e.File, e.Line, e.Column))
	case cmp.Or(e.From, e.File) != "":
		parts = append(parts, cmp.Or(e.From, e.File))
	}
	if e.Path != "" {
		parts = append(parts, e.Path)
	}
	text := strings.Join(append(parts, e.Message), ": ")
	if e.Suggestion != "" {
		text += "; " + e.Suggestion
	}
	return text
}

// Errors is everything that is wrong with the configuration, in the order of
// the file.
type Errors []*Error

// Error has a line for each error, and below it the line of the file with a
// mark under the place.
func (es Errors) Error() string {
	var b strings.Builder
	for i, e := range es {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(e.Error())
		if e.Source != "" {
			number := fmt.Sprintf("%5d", e.Line)
			text, before := excerpt(e.Source, e.Column)
			fmt.Fprintf(&b, "\n%s | %s\n%s | %s^", number, text, strings.Repeat(" ", len(number)), strings.Repeat(" ", before))
		}
	}
	return b.String()
}

// Unwrap returns the single errors.
func (es Errors) Unwrap() []error {
	var list []error
	for _, e := range es {
		list = append(list, e)
	}
	return list
}

const excerptWidth = 100

// excerpt cuts a long line around a column, makes characters that move the
// cursor visible as one space, and returns how many are before the column.
func excerpt(line string, column int) (text string, before int) {
	runes := []rune(line)
	for i, r := range runes {
		if r < ' ' || r == 0x7f {
			runes[i] = ' '
		}
	}
	before = min(max(column-1, 0), len(runes))
	if from := before - excerptWidth/2; len(runes) > excerptWidth && from > 0 {
		runes, before = runes[from:], before-from
	}
	if len(runes) > excerptWidth {
		runes = runes[:excerptWidth]
	}
	return strings.TrimRight(string(runes), " "), before
}

var secretsInSource = []*regexp.Regexp{
	regexp.MustCompile(`://[^:/@\s]*:([^@/\s]+)@`),
	regexp.MustCompile(`\b[0-9a-fA-F]{8}([0-9a-fA-F]{32,})\b`),
	regexp.MustCompile(`(?i)\bsha256["']?\s*:\s*["']?([^\s,}"']+)`),
	regexp.MustCompile(`(?i)\b(?:password|passwd|token|secret)=([^&\s"']+)`),
}

// urlInSource finds the values of settings that are URLs with secrets, and what comes
// after them in the line. plainURL are values that have none, or where the other
// patterns find it; any other may be a password from its first character on.
var (
	urlInSource = regexp.MustCompile(`\b(?:[a-z]+_)?url["']?\s*:\s*["']?([^\s,}"']*)(.*)`)
	plainURL    = regexp.MustCompile(`^(?:pebble:[^@?]*|memory:|[a-z0-9-]+://(?:[^:/@?]*(?::[^/@?]+)?@)?[^@?]*)$`)
)

// maskSecrets hides passwords in URLs and the greater part of digests. The text
// keeps its length in bytes, so that columns stay right unless a secret has
// characters of several.
func maskSecrets(text string) string {
	at := urlInSource.FindStringSubmatchIndex(text)
	if at != nil && (!plainURL.MatchString(text[at[2]:at[3]]) || strings.Contains(text[at[3]:], "@")) {
		text = text[:at[2]] + strings.Repeat("*", len(text)-at[2])
	}
	for _, pattern := range secretsInSource {
		for _, at := range pattern.FindAllStringSubmatchIndex(text, -1) {
			text = text[:at[2]] + strings.Repeat("*", at[3]-at[2]) + text[at[3]:]
		}
	}
	return text
}

// problems collects what is wrong.
type problems struct {
	file    string
	lines   []string
	origins *Origins
	list    Errors
	// faulty has the paths that have an error. Nothing more is said about them:
	// what follows from a wrong value is noise.
	faulty map[string]bool
}

// addAt reports an error at a place in the file.
func (p *problems) addAt(path string, line, column int, message, hint string) {
	if p.faulty[path] && path != "" {
		return
	}
	p.faulty[path] = true
	e := &Error{File: p.file, Line: max(line, 1), Column: max(column, 1), Path: path, Message: message, Suggestion: hint}
	if line >= 1 && line <= len(p.lines) {
		e.Source = strings.TrimRight(maskSecrets(p.lines[line-1]), " \t\r")
	}
	p.list = append(p.list, e)
}

// add reports an error of a setting, at the place that it came from. For one
// that was not written it is the section around it.
func (p *problems) add(path, message, hint string) {
	if p.faulty[path] {
		return
	}
	for at := path; ; at = parent(at) {
		origin, known := p.origins.at[at]
		switch {
		case known && origin.Line > 0:
			p.addAt(path, origin.Line, origin.Column, message, hint)
			return
		case known && origin.Kind != FromDefault:
			p.faulty[path] = true
			p.list = append(p.list, &Error{From: origin.String(), Path: path, Message: message, Suggestion: hint})
			return
		case at != "":
			continue
		case p.lines != nil:
			p.addAt(path, 1, 1, message, hint)
			return
		}
		p.faulty[path] = true
		p.list = append(p.list, &Error{File: p.file, Path: path, Message: message, Suggestion: hint})
		return
	}
}

// parent is the path of what a setting is part of.
func parent(path string) string {
	return path[:max(strings.LastIndexAny(path, ".["), 0)]
}

// sorted returns the errors in the order of the file, then those from
// elsewhere.
func (p *problems) sorted() Errors {
	slices.SortStableFunc(p.list, func(a, b *Error) int {
		return cmp.Or(
			cmp.Compare(btoi(a.Line == 0), btoi(b.Line == 0)), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column),
			cmp.Compare(a.From, b.From), cmp.Compare(a.Path, b.Path))
	})
	return p.list
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
