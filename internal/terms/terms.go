// Package terms makes the entries of an attribute index, for stores that keep their own.
package terms

import (
	"bytes"
	"crypto/sha256"
	"maps"
	"slices"

	"github.com/semelhq/semel/store"
)

// Form is the format of a term. A store with entries of another format rebuilds them.
const Form = 1

// Term stands for an attribute's name and value. Two attributes may share one: if you find a
// record by it, compare the record with the query.
type Term [16]byte

// Len is the length of a term.
const Len = len(Term{})

// skipped isn't indexed: it differs for each attempt, and searches know only its beginning.
const skipped = store.AttributeTrace

func of(name, value string) Term {
	sum := sha256.Sum256([]byte(name + "\x00" + value)) // neither has a NUL
	return Term(sum[:Len])
}

// Of returns the terms of a record's attributes.
func Of(attributes store.Attributes) (all []Term) {
	for name, value := range attributes {
		if name != skipped {
			all = append(all, of(name, value))
		}
	}
	return all
}

// Changed returns the terms that a record has lost, and its new ones.
func Changed(was, is store.Attributes) (gone, added []Term) {
	if maps.Equal(was, is) {
		return nil, nil
	}
	return Of(without(was, is)), Of(without(is, was))
}

// without returns the attributes of a that b lacks.
func without(a, b store.Attributes) store.Attributes {
	rest := store.Attributes{}
	for name, value := range a {
		if other, ok := b[name]; !ok || other != value {
			rest[name] = value
		}
	}
	return rest
}

// For returns a list of terms such that every record that the query selects has one of them. It
// reports false if there is no such list.
func For(q *store.Query) ([]Term, bool) {
	for _, name := range slices.Sorted(maps.Keys(q.Attributes)) {
		if name != skipped {
			return []Term{of(name, q.Attributes[name])}, true
		}
	}
	for _, list := range q.Any {
		if all, ok := forAny(list); ok {
			return all, true
		}
	}
	return nil, false
}

func forAny(list []store.Query) (all []Term, ok bool) {
	for i := range list {
		some, ok := For(&list[i])
		if !ok {
			return nil, false
		}
		all = append(all, some...)
	}
	slices.SortFunc(all, func(a, b Term) int { return bytes.Compare(a[:], b[:]) })
	return slices.Compact(all), len(list) > 0
}
