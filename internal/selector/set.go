package selector

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/semelhq/semel/internal/canon"
)

// maxParts bounds the pointers of a [Set]: every body is searched for each.
const maxParts = 32

// Set says which parts of a JSON document to compare.
type Set struct {
	only, ignore []Pointer
	frame        []byte
}

// ParseSet reads two lists of pointers: parts to compare (all if the list is empty), and parts
// to leave out, even inside the first. It returns nil for two empty lists.
func ParseSet(only, ignore []string) (*Set, error) {
	if len(only)+len(ignore) == 0 {
		return nil, nil
	}
	if len(only)+len(ignore) > maxParts {
		return nil, fmt.Errorf("there are more than %d pointers", maxParts)
	}
	var errs []error
	parse := func(texts []string) (list []Pointer) {
		for _, text := range texts {
			p, err := ParsePointer(text)
			if err == nil && text == "" {
				err = errors.New("the empty JSON pointer is the whole document")
			}
			errs = append(errs, err)
			list = append(list, p)
		}
		slices.SortFunc(list, func(a, b Pointer) int { return strings.Compare(a.text, b.text) })
		return slices.CompactFunc(list, func(a, b Pointer) bool { return a.text == b.text })
	}
	s := &Set{only: parse(only), ignore: parse(ignore)}
	for _, list := range [][]Pointer{s.only, s.ignore} {
		s.frame = binary.AppendUvarint(s.frame, uint64(len(list)))
		for _, p := range list {
			s.frame = canon.Frame(s.frame, p.text)
		}
	}
	return s, errors.Join(errs...)
}

// Has reports whether the value that a pointer leads to is compared, by itself or within another.
func (s *Set) Has(pointer string) bool {
	within := func(p Pointer) bool { return pointer == p.text || strings.HasPrefix(pointer, p.text+"/") }
	return (len(s.only) == 0 || slices.ContainsFunc(s.only, within)) && !slices.ContainsFunc(s.ignore, within)
}

// InList reports whether a pointer may lead into a list at the top of the document.
func (s *Set) InList() bool {
	return slices.ContainsFunc(slices.Concat(s.only, s.ignore), func(p Pointer) bool { return len(p.tokens) > 0 && p.tokens[0].index >= 0 })
}

// AppendFrame appends bytes that distinguish the set from every other. Put them before what
// [Set.Append] appends, so that digests under two sets never match.
func (s *Set) AppendFrame(b []byte) []byte { return append(b, s.frame...) }

// Append appends the parts of a canonical document, which it changes. A missing part differs
// from every value.
func (s *Set) Append(b, doc []byte) []byte {
	for _, p := range s.ignore {
		doc = p.cut(doc)
	}
	if len(s.only) == 0 {
		return append(b, doc...)
	}
	for _, p := range s.only {
		var value []byte // no value is empty
		if at, ok := p.find(doc, true); ok {
			value = doc[at.from:at.to]
		}
		b = canon.Frame(b, value)
	}
	return b
}
