// Package selector finds values in HTTP requests and answers, such as a key, by short texts
// that are parsed once, at configuration time:
//
//	header:NAME    a header, by any spelling of its name
//	query:NAME     a parameter of the query
//	form:NAME      a field of a form in the body
//	json:POINTER   a string or a number in a JSON body, by JSON pointer (RFC 6901)
//	hash:POINTER   the SHA-256 of any value there
//	cart:POINTER   the hash of the cart there; see [keytemplate.CartHash]
//	answer:POINTER a string or a number in the JSON body of the answer
package selector

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strings"

	"github.com/semelhq/semel/internal/canon"
	"github.com/semelhq/semel/internal/keytemplate"
)

// Source says where a value is.
type Source string

// The sources.
const (
	Header Source = "header"
	Query  Source = "query"
	Form   Source = "form"
	JSON   Source = "json"
	Hash   Source = "hash"
	Cart   Source = "cart"
	Answer Source = "answer"
)

// Keys, Values and Facts are the allowed sources for keys, for a key template's values, and for
// attributes.
var (
	Keys   = []Source{Header, JSON, Form, Query}
	Values = []Source{Header, JSON, Form, Query, Hash, Cart}
	Facts  = []Source{Header, JSON, Form, Query, Answer}
)

// Selector is one parsed text. It never changes.
type Selector struct {
	text    string
	Source  Source
	Name    string // of a header, in canonical form, of a parameter or a field
	pointer Pointer
}

// String returns the text.
func (s Selector) String() string { return s.text }

// InBody reports whether the value is in the body of a request.
func (s Selector) InBody() bool {
	return s.Source == Form || s.InJSON()
}

// InJSON reports whether the value is in a JSON body of a request.
func (s Selector) InJSON() bool {
	return s.Source == JSON || s.Source == Hash || s.Source == Cart
}

// Parse reads a text with one of the allowed sources.
func Parse(text string, allowed []Source) (Selector, error) {
	source, rest, ok := strings.Cut(text, ":")
	s := Selector{text: text, Source: Source(source), Name: rest}
	var names []string
	for _, a := range allowed {
		names = append(names, string(a)+":")
	}
	if !ok || !slices.Contains(allowed, s.Source) {
		return s, fmt.Errorf("%q doesn't say where the value is: it begins with one of %s", text, strings.Join(names, ", "))
	}
	switch s.Source {
	case Header:
		s.Name = textproto.CanonicalMIMEHeaderKey(rest)
		if rest == "" || strings.ContainsFunc(rest, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r) }) {
			return s, fmt.Errorf("%q doesn't name a header", text)
		}
	case Query, Form:
		if rest == "" {
			return s, fmt.Errorf("%q names no parameter", text)
		}
	default:
		var err error
		if s.pointer, err = ParsePointer(rest); err != nil {
			return s, err
		}
		if rest == "" && s.Source != Hash && s.Source != Cart {
			return s, fmt.Errorf("%q is the whole body: write a pointer to one value, such as %s:/id", text, s.Source)
		}
	}
	return s, nil
}

// Input is what a selector reads values from. Zero fields hold none.
type Input struct {
	Header http.Header
	Query  string // without the question mark
	Form   []byte // the body, if it is a form
	JSON   []byte // the body in canonical form, if it is JSON; never changed
	// Raw says that JSON is valid but not canonical. Then names with an escape that canonical
	// form lacks aren't found, nor are repeated names.
	Raw bool
}

// Errors of [Selector.Find]. They reveal nothing about the value.
var (
	ErrTwice = errors.New("is given more than once")
	ErrKind  = errors.New("is not a string or a number")
	ErrForm  = errors.New("can't be read, because the text around it is malformed")
)

// Find finds the value. found is false if it isn't there, or is null or empty. A value that
// appears twice, or that has no unique text, is an error, which doesn't reveal it. Numbers are
// in canonical form, and never become binary64.
func (s Selector) Find(in *Input) (value string, found bool, err error) {
	switch s.Source {
	case Header:
		switch values := in.Header[s.Name]; len(values) {
		case 0:
		case 1:
			value = values[0]
		default:
			err = ErrTwice
		}
	case Query:
		value, err = pair(in.Query, s.Name)
	case Form:
		value, err = pair(string(in.Form), s.Name)
	default:
		if in.JSON == nil {
			return "", false, nil
		}
		at, ok := s.pointer.find(in.JSON, !in.Raw)
		if !ok || bytes.Equal(in.JSON[at.from:at.to], []byte("null")) {
			return "", false, nil
		}
		text := in.JSON[at.from:at.to]
		if in.Raw && text[0] != '{' && text[0] != '[' {
			if text, err = canon.Canonicalize(text, canon.Exact); err != nil {
				return "", false, ErrForm
			}
		}
		value, err = s.textOf(text)
	}
	return value, value != "" && err == nil, err
}

// Cut returns a canonical document, which it changes, without the member that the selector
// finds. It replaces an element with null, so that the others keep their places. What Find
// doesn't find stays.
func (s Selector) Cut(doc []byte) []byte {
	if s.Source != JSON {
		return doc
	}
	if _, found, _ := s.Find(&Input{JSON: doc}); !found {
		return doc
	}
	return s.pointer.cut(doc)
}

// Restate returns a canonical document, which it changes, with Find's text instead of each
// value that the selectors find.
func Restate(doc []byte, list []Selector) []byte {
	texts := make([]string, len(list)) // first, before any change: one may be inside another
	for i, s := range list {
		texts[i], _, _ = s.Find(&Input{JSON: doc})
	}
	for i, s := range list {
		if texts[i] != "" {
			doc = s.pointer.replace(doc, texts[i])
		}
	}
	return doc
}

// Texts returns all values at the place, for a comparison: every value of a header, or in JSON
// a string, a number or a boolean. It leaves out values without a text.
func (s Selector) Texts(in *Input) []string {
	if s.Source == Header {
		return in.Header[s.Name]
	}
	text, found, err := s.Find(in)
	if errors.Is(err, ErrKind) {
		at, _ := s.pointer.find(in.JSON, !in.Raw)
		text = string(in.JSON[at.from:at.to])
		found = text == "true" || text == "false"
	}
	if !found {
		return nil
	}
	return []string{text}
}

// textOf returns the text of a JSON value.
func (s Selector) textOf(v []byte) (string, error) {
	switch {
	case s.Source == Hash:
		sum := sha256.Sum256(v)
		return hex.EncodeToString(sum[:]), nil
	case s.Source == Cart:
		if v[0] != '[' {
			return "", errors.New("is not a list of items")
		}
		return keytemplate.CartHash(bytes.NewReader(itemsOf(v)))
	case v[0] == '"':
		var text string
		err := json.Unmarshal(v, &text)
		return text, err
	case v[0] == '-' || v[0] >= '0' && v[0] <= '9':
		return string(v), nil
	}
	return "", ErrKind
}

// itemsOf returns the elements of a list one after another, in new memory.
func itemsOf(list []byte) []byte {
	items := make([]byte, 0, len(list))
	for at := 1; list[at] != ']'; {
		end := skip(list, at)
		items = append(append(items, list[at:end]...), '\n')
		at = next(list, end)
	}
	return items
}

// pair returns the value of a query's or form's only pair with this name.
func pair(text, name string) (value string, err error) {
	seen := false
	for item := range strings.SplitSeq(text, "&") {
		left, right, _ := strings.Cut(item, "=")
		if got, err := url.QueryUnescape(left); err != nil {
			return "", ErrForm
		} else if got != name || item == "" {
			continue
		}
		if seen {
			return "", ErrTwice
		}
		if value, err = url.QueryUnescape(right); err != nil {
			return "", ErrForm
		}
		seen = true
	}
	return value, nil
}
