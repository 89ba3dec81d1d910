package selector

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/semelhq/semel/internal/canon"
)

// maxTokens and maxPointer bound a pointer, so that following it costs little.
const (
	maxTokens  = 32
	maxPointer = 512
)

// Pointer is a JSON pointer (RFC 6901) into canonical JSON.
type Pointer struct {
	text   string
	tokens []token
}

// token is one step: a member's name in canonical form, with its quotes, and the index of an
// element, or -1.
type token struct {
	name  []byte
	index int
}

var escapes = strings.NewReplacer("~", "~0", "/", "~1")

// Escape returns the name of a member as a pointer has it.
func Escape(name string) string { return escapes.Replace(name) }

// ParsePointer reads a pointer. The empty one is the whole document.
func ParsePointer(text string) (Pointer, error) {
	p := Pointer{text: text}
	switch {
	case text == "":
		return p, nil
	case text[0] != '/':
		return p, fmt.Errorf("the JSON pointer %q doesn't begin with a slash: write /%s", text, text)
	case len(text) > maxPointer || strings.Count(text, "/") > maxTokens:
		return p, fmt.Errorf("the JSON pointer has more than %d bytes or %d steps", maxPointer, maxTokens)
	case !utf8.ValidString(text):
		return p, errors.New("the JSON pointer isn't valid UTF-8")
	}
	for part := range strings.SplitSeq(text[1:], "/") {
		if rest := strings.NewReplacer("~0", "", "~1", "").Replace(part); strings.Contains(rest, "~") {
			return p, fmt.Errorf("the JSON pointer %q has a ~ that is neither ~0 nor ~1", text)
		}
		part = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
		quoted, err := json.Marshal(part)
		if err != nil {
			return p, err
		}
		name, err := canon.Canonicalize(quoted, canon.Exact)
		if err != nil {
			return p, err
		}
		t := token{name: name, index: -1}
		if n, err := strconv.Atoi(part); err == nil && n >= 0 && strconv.Itoa(n) == part {
			t.index = n
		}
		p.tokens = append(p.tokens, t)
	}
	return p, nil
}

// span is a position in a document: a value, and the member or element that it belongs to,
// which begins earlier if it has a name.
type span struct {
	member, from, to int
	element          bool
}

// Value returns the value in canonical JSON, as it is written there.
func (p Pointer) Value(doc []byte) (value []byte, ok bool) {
	s, ok := p.find(doc, true)
	if !ok {
		return nil, false
	}
	return doc[s.from:s.to], true
}

// find follows the pointer in canonical JSON, which has no white space and no repeated names.
// In other JSON, it doesn't follow a repeated name.
func (p Pointer) find(doc []byte, canonical bool) (s span, ok bool) {
	s.from, s.to = white(doc, 0), len(doc)
	for _, t := range p.tokens {
		switch doc[s.from] {
		case '{':
			s.element = false
			ok = t.member(doc, &s, canonical)
		case '[':
			s.element = true
			ok = t.index >= 0 && t.item(doc, &s)
		default:
			ok = false
		}
		if !ok {
			return s, false
		}
	}
	return s, true
}

// member moves to the member with the token's name.
func (t *token) member(doc []byte, s *span, canonical bool) (found bool) {
	for at := white(doc, s.from+1); doc[at] != '}'; {
		name := skip(doc, at)
		value := white(doc, white(doc, name)+1)
		end := skip(doc, value)
		if bytes.Equal(doc[at:name], t.name) {
			if found {
				return false
			}
			s.member, s.from, s.to = at, value, end
			if found = true; canonical {
				return true
			}
		}
		at = next(doc, end)
	}
	return found
}

// item moves to the element with the token's index.
func (t *token) item(doc []byte, s *span) bool {
	for at, n := white(doc, s.from+1), 0; doc[at] != ']'; n++ {
		end := skip(doc, at)
		if n == t.index {
			s.member, s.from, s.to = at, at, end
			return true
		}
		at = next(doc, end)
	}
	return false
}

// white returns the first place from at on that isn't white space. Canonical JSON has white
// space only in strings.
func white(doc []byte, at int) int {
	for at < len(doc) && doc[at] <= ' ' {
		at++
	}
	return at
}

// next returns the start of what follows a value: a member, an element or the end of them.
func next(doc []byte, end int) int {
	if end = white(doc, end); doc[end] == ',' {
		end = white(doc, end+1)
	}
	return end
}

// skip returns the end of the value that begins at a place.
func skip(doc []byte, at int) int {
	switch doc[at] {
	case '"':
		for at++; doc[at] != '"'; at++ {
			if doc[at] == '\\' {
				at++
			}
		}
		return at + 1
	case '{', '[':
		for depth := 0; ; at++ {
			switch doc[at] {
			case '"':
				at = skip(doc, at) - 1
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return at + 1
				}
			}
		}
	}
	for at < len(doc) && doc[at] > ' ' && doc[at] != ',' && doc[at] != '}' && doc[at] != ']' {
		at++
	}
	return at
}

// cut returns the document, which it changes, without the member that the pointer leads to. It
// replaces an element with null, so that the others keep their places.
func (p Pointer) cut(doc []byte) []byte {
	s, ok := p.find(doc, true)
	switch {
	case !ok:
		return doc
	case s.element || len(p.tokens) == 0:
		return slices.Replace(doc, s.from, s.to, []byte("null")...)
	case doc[s.to] == ',':
		s.to++
	case doc[s.member-1] == ',':
		s.member--
	}
	return slices.Delete(doc, s.member, s.to)
}

// replace returns the document, which it changes, with a text instead of the value that the
// pointer leads to.
func (p Pointer) replace(doc []byte, text string) []byte {
	s, ok := p.find(doc, true)
	if !ok {
		return doc
	}
	quoted, _ := json.Marshal(text) // neither this nor its canonical form can fail
	value, _ := canon.Canonicalize(quoted, canon.Exact)
	return slices.Replace(doc, s.from, s.to, value...)
}
