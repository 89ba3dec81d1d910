package pgstore

import (
	"encoding/binary"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/semelhq/semel/store"
)

// Attributes are lexemes NAME=VALUE of a text search vector. Its index finds them whole or by
// prefix. A search compares each record with the query, so two attributes may share a lexeme.

// maxLexeme is the longest lexeme, in bytes; longer ones are cut. The server takes up to 2,046.
const maxLexeme = 1100

func lexeme(name, value string) string {
	text := name + "=" + value
	if len(text) <= maxLexeme {
		return text
	}
	end := maxLexeme
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end]
}

// appendLexemes appends the vector of attributes in binary form; no attributes are null.
func appendLexemes(b []byte, attributes store.Attributes) []byte {
	if len(attributes) == 0 {
		return nil
	}
	list := make([]string, 0, len(attributes))
	for name, value := range attributes {
		list = append(list, lexeme(name, value))
	}
	slices.Sort(list)
	list = slices.Compact(list)
	b = binary.BigEndian.AppendUint32(b, uint32(len(list)))
	for _, text := range list {
		b = append(append(b, text...), 0)
		b = binary.BigEndian.AppendUint16(b, 0) // it has no positions
	}
	return b
}

// appendAttribute appends one attribute as text; a missing one is null.
func appendAttribute(b []byte, attributes store.Attributes, name string) []byte {
	if value, ok := attributes[name]; ok {
		return append(b, value...)
	}
	return nil
}

// lexemeQuery returns the text search query for all attributes of a query.
func lexemeQuery(q *store.Query) string {
	var terms []string
	quote := strings.NewReplacer(`'`, `''`, `\`, `\\`)
	for name, value := range q.Attributes {
		terms = append(terms, "'"+quote.Replace(lexeme(name, value))+"'")
	}
	for name, prefix := range q.AttributePrefixes {
		terms = append(terms, "'"+quote.Replace(lexeme(name, prefix))+"':*")
	}
	slices.Sort(terms)
	return strings.Join(terms, " & ")
}
