// Package jsonscan finds members and items in JSON, and returns them unchanged, without
// decoding the rest. It doesn't check the text; package canon does.
package jsonscan

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/semelhq/semel/internal/canon"
)

// Members yields the names and values of the object in text, in order: names unescaped, values
// unchanged. Unlike an encoding/json struct it distinguishes names by case, and unlike a map it
// costs nothing for unused members. A yielded name is valid until the next one. Text that isn't
// an object has none; invalid JSON has those before its first fault.
func Members(text []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(name, value []byte) bool) {
		s := scanner{text: text}
		if !s.skip('{') {
			return
		}
		for s.next() == '"' {
			name, ok := s.name()
			if !ok || !s.skip(':') {
				return
			}
			value, ok := s.value()
			if !ok || !yield(name, value) || !s.skip(',') {
				return
			}
		}
	}
}

// Member returns the value of the member with exactly this name, or nil; the last one, if there
// are several.
func Member(text []byte, name string) (value []byte) {
	for n, v := range Members(text) {
		if string(n) == name {
			value = v
		}
	}
	return value
}

// Spelled refuses an object with a member of one of these names in another case: servers in Go,
// for one, don't distinguish them. The error is for whoever sent it.
func Spelled(object []byte, names ...string) error {
	for name := range Members(object) {
		for _, known := range names {
			if string(name) != known && strings.EqualFold(string(name), known) {
				return fmt.Errorf("a member is spelled in another way than %s", known)
			}
		}
	}
	return nil
}

// Offset returns where in text a value begins that [Members] or [Items] yielded from it, or
// from a value inside it.
func Offset(text, value []byte) int { return cap(text) - cap(value) }

// CheckBut is [canon.Check] without the given values, which come from [Member], [Members] or
// [Items] and which somebody else checks: reading them twice would take several times the
// memory. They must be in the order of the text; nil ones don't count.
func CheckBut(src []byte, mode canon.Mode, values ...[]byte) error {
	var rest []byte
	from, holes := 0, 0
	for _, v := range values {
		if v == nil {
			continue
		}
		begin := Offset(src, v)
		if begin < from {
			return canon.Check(src, mode) // a name appears twice
		}
		rest = append(append(rest, src[from:begin]...), '0')
		from = begin + len(v)
		holes++
	}
	if holes == 0 {
		return canon.Check(src, mode)
	}
	return canon.Check(append(rest, src[from:]...), mode)
}

// Insert returns text with a member, a quoted name and its value, as the first of the object that
// begins at a place, or after white space there.
func Insert(text []byte, at int, member string) []byte {
	for text[at] != '{' {
		at++
	}
	for range Members(text[at:]) {
		member += ","
		break
	}
	return slices.Concat(text[:at+1], []byte(member), text[at+1:])
}

// At returns the value at a path of names, or nil.
func At(text []byte, path ...string) []byte {
	for _, name := range path {
		text = Member(text, name)
	}
	return text
}

// Replaced returns text with another value at a path of names, if there is one, and the rest as it is
// spelled.
func Replaced(text []byte, change func(value []byte) []byte, path ...string) []byte {
	value := At(text, path...)
	if value == nil {
		return text
	}
	at := Offset(text, value)
	return slices.Concat(text[:at], change(value), text[at+len(value):])
}

// Without returns text without the member at a path of names. If something on the path is
// missing or repeated, it returns text unchanged.
func Without(text []byte, path ...string) []byte {
	object := text
	for i, name := range path {
		var found []byte
		first, from, to := true, 0, 0
		end := Offset(text, object) + bytes.IndexByte(object, '{') + 1
		for n, value := range Members(object) {
			begin := end
			end = Offset(text, value) + len(value)
			if string(n) == name && found != nil {
				return text
			}
			if string(n) == name {
				found, from, to = value, begin, end
			}
			first = first && found != nil
		}
		if found == nil {
			return text
		}
		if object = found; i < len(path)-1 {
			continue
		}
		if first { // the comma follows it
			s := scanner{text: text, pos: to}
			s.skip(',')
			to = s.pos
		}
		return append(append(make([]byte, 0, len(text)-(to-from)), text[:from]...), text[to:]...)
	}
	return text
}

// Items yields the items of the array in text, unchanged. Text that isn't an array has none;
// invalid JSON has those before its first fault.
func Items(text []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		s := scanner{text: text}
		if !s.skip('[') {
			return
		}
		for s.next() != ']' {
			item, ok := s.value()
			if !ok || !yield(item) || !s.skip(',') {
				return
			}
		}
	}
}

// Values returns how many values are in text, at any depth, counting one too many for each
// empty object or array. Use it to bound the size of a tree of them.
func Values(text []byte) (n int) {
	s := scanner{text: text}
	for n = 1; s.pos < len(s.text); {
		switch s.text[s.pos] {
		case '"':
			if _, ok := s.quoted(); !ok {
				return n
			}
			continue
		case '{', '[', ',':
			n++
		}
		s.pos++
	}
	return n
}

// Text returns the string in text, and whether it is one.
func Text(text []byte) (s string, is bool) {
	if len(text) == 0 || text[0] != '"' || json.Unmarshal(text, &s) != nil {
		return "", false
	}
	return s, true
}

// Tree decodes valid JSON like encoding/json, with [json.Number], but without copying the text.
func Tree(text []byte) any {
	s := scanner{text: text}
	return s.tree()
}

// tree nests no deeper than the text, which [canon.MaxDepth] bounds if that was checked.
func (s *scanner) tree() any {
	switch s.next() {
	case '{':
		s.pos++
		object := map[string]any{}
		for s.next() == '"' {
			name, ok := s.name()
			if !ok || !s.skip(':') {
				break
			}
			key := string(name)
			object[key] = s.tree()
			s.skip(',')
		}
		s.skip('}')
		return object
	case '[':
		s.pos++
		list := []any{}
		for c := s.next(); c != ']' && c != 0; c = s.next() {
			list = append(list, s.tree())
			s.skip(',')
		}
		s.skip(']')
		return list
	}
	raw, _ := s.value()
	switch {
	case len(raw) == 0:
		s.pos++ // not JSON, but it ends
		return nil
	case raw[0] == '"':
		text, _ := Text(raw)
		return text
	case raw[0] == 'n':
		return nil
	case raw[0] == 't', raw[0] == 'f':
		return raw[0] == 't'
	}
	return json.Number(raw)
}

// scanner walks over JSON without checking it.
type scanner struct {
	text []byte
	pos  int
	buf  []byte // an unescaped name
}

// next returns the next byte that isn't white space; 0 at the end.
func (s *scanner) next() byte {
	for s.pos < len(s.text) {
		switch c := s.text[s.pos]; c {
		case ' ', '\n', '\t', '\r':
			s.pos++
		default:
			return c
		}
	}
	return 0
}

// skip skips a byte, if it is the next one.
func (s *scanner) skip(c byte) bool {
	if s.next() != c {
		return false
	}
	s.pos++
	return true
}

// name returns a string, unescaped.
func (s *scanner) name() ([]byte, bool) {
	raw, ok := s.quoted()
	if !ok {
		return nil, false
	}
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw[1 : len(raw)-1], true
	}
	// Half a surrogate pair, which isn't strict JSON, is read like encoding/json does.
	name, ok := canon.AppendUnescaped(s.buf[:0], raw[1:len(raw)-1])
	if ok {
		s.buf = name
	}
	return name, ok
}

// quoted returns a string unchanged.
func (s *scanner) quoted() ([]byte, bool) {
	for i := s.pos + 1; i < len(s.text); i++ {
		switch s.text[i] {
		case '\\':
			i++
		case '"':
			raw := s.text[s.pos : i+1]
			s.pos = i + 1
			return raw, true
		}
	}
	return nil, false
}

// value returns a value unchanged.
func (s *scanner) value() ([]byte, bool) {
	switch s.next() {
	case 0, ',', ':', ']', '}':
		return nil, false
	case '"':
		return s.quoted()
	case '{', '[':
		return s.container()
	}
	begin := s.pos
	for s.pos < len(s.text) && bytes.IndexByte([]byte(" \n\t\r,:]}"), s.text[s.pos]) < 0 {
		s.pos++
	}
	return s.text[begin:s.pos], true
}

// container returns an object or an array unchanged.
func (s *scanner) container() ([]byte, bool) {
	begin, depth := s.pos, 0
	for s.pos < len(s.text) {
		switch s.text[s.pos] {
		case '"':
			if _, ok := s.quoted(); !ok {
				return nil, false
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				s.pos++
				return s.text[begin:s.pos], true
			}
		}
		s.pos++
	}
	return nil, false
}
