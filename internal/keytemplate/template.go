// Package keytemplate makes idempotency keys from templates such as
// "payment:{order_id}:{amount}:{currency}", and finds mistakes in templates that would give
// every delivery a different key, or two different calls the same one.
//
// All characters of a value but letters, digits and "-._~" are percent-encoded. So a separator
// never occurs inside a value, and different values never make the same key.
package keytemplate

import (
	"errors"
	"fmt"
	"strings"
)

// MaxKeyLen is the longest key that a template may make, in bytes: what the
// doors accept in an Idempotency-Key header.
const MaxKeyLen = 255

// A Template is a parsed key template: literal text and fields in braces. It never changes
// after Parse.
type Template struct {
	text  string
	parts []part
	scope string // a field that Fill also accepts
}

// part is a literal, or a field if name is set.
type part struct {
	column  int // of its first byte in the template, from 1
	literal string
	name    string
}

// A SyntaxError is a mistake in the form of a template.
type SyntaxError struct {
	// Column is the position in the template, in bytes from 1.
	Column int
	// Message is the reason, for people.
	Message string
}

// Error returns the column and the reason.
func (e *SyntaxError) Error() string { return fmt.Sprintf("column %d: %s", e.Column, e.Message) }

// Parse reads a template. Fields are named by letters, digits, "_", "-" and ".",
// beginning with a letter. Literals are visible ASCII without braces and "%".
// Two fields need a separator between them that can't occur in a value, such as ":".
// The error joins a [*SyntaxError] for every problem.
func Parse(text string) (*Template, error) {
	t := &Template{text: text}
	var errs []error
	bad := func(column int, format string, args ...any) {
		errs = append(errs, &SyntaxError{Column: column, Message: fmt.Sprintf(format, args...)})
	}
	for at := 0; at < len(text); {
		if text[at] != '{' {
			end := len(text)
			if i := strings.IndexByte(text[at:], '{'); i >= 0 {
				end = at + i
			}
			literal := text[at:end]
			checkLiteral(literal, at+1, bad)
			t.parts = append(t.parts, part{column: at + 1, literal: literal})
			at = end
			continue
		}
		length := strings.IndexByte(text[at:], '}')
		if length < 0 {
			bad(at+1, "the brace is never closed")
			break
		}
		name := text[at+1 : at+length]
		if !validName(name) {
			bad(at+2, "%q isn't a field name: use letters, digits, _, - and ., beginning with a letter", name)
		}
		t.parts = append(t.parts, part{column: at + 1, name: name})
		at += length + 1
	}
	t.checkSeparators(bad)
	return t, errors.Join(errs...)
}

// New is Parse for templates that will be used: it also fails if [Lint] finds anything. scope
// names the field with the key's scope; it may be one of the template's, another one, or empty.
func New(text, scope string) (*Template, error) {
	var errs []error
	for _, p := range Lint(text) {
		if p.Rule == RuleScope && scope != "" && identifies(scope) {
			continue
		}
		errs = append(errs, fmt.Errorf("column %d: %s: %s", p.Column, p.Message, p.Suggestion))
	}
	if p, bad := LintName(scope); bad {
		errs = append(errs, fmt.Errorf("scope %s: %s: %s", scope, p.Message, p.Suggestion))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	t, err := Parse(text)
	if err != nil {
		return nil, err
	}
	if scope != "" && !validName(scope) {
		return nil, fmt.Errorf("%q isn't a field name", scope)
	}
	t.scope = scope
	return t, nil
}

func checkLiteral(literal string, column int, bad func(int, string, ...any)) {
	for i := range len(literal) {
		switch c := literal[i]; {
		case c == '}':
			bad(column+i, "a closing brace without an opening one")
			return
		case c == '%':
			bad(column+i, "%q is kept for encoded values", c)
			return
		case c <= ' ' || c > '~':
			bad(column+i, "a key has visible ASCII characters only")
			return
		}
	}
}

// checkSeparators refuses fields whose values could run into each other.
func (t *Template) checkSeparators(bad func(int, string, ...any)) {
	for i := range t.parts {
		if t.parts[i].name == "" {
			continue
		}
		switch {
		case i+1 < len(t.parts) && t.parts[i+1].name != "":
			bad(t.parts[i+1].column, "two fields touch, so different values could make the same key: put a : between them")
		case i+2 < len(t.parts) && !strings.ContainsFunc(t.parts[i+1].literal, func(r rune) bool { return !plain(byte(r)) }):
			bad(t.parts[i+1].column, "%q may also occur inside a value, so different values could make the same key: use a separator such as :", t.parts[i+1].literal)
		}
	}
}

func validName(name string) bool {
	for i := range len(name) {
		c := name[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (i == 0 || strings.IndexByte("_-.0123456789", c) < 0) {
			return false
		}
	}
	return name != ""
}

// plain reports whether a byte can appear unescaped in a value: RFC 3986's unreserved
// characters.
func plain(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-._~", c) >= 0
}

// Fields returns the names in the template, in order and each once; the scope's comes last,
// unless it is among them.
func (t *Template) Fields() []string {
	var names []string
	seen := map[string]bool{}
	for _, p := range t.parts {
		if p.name != "" && !seen[p.name] {
			seen[p.name] = true
			names = append(names, p.name)
		}
	}
	if t.scope != "" && !seen[t.scope] {
		names = append(names, t.scope)
	}
	return names
}
