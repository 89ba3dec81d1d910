// Package paramheader compares the headers of MCP that mirror arguments of a tool (x-mcp-header)
// with the body, and reads and writes values of headers that aren't plain ASCII.
package paramheader

import (
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"

	"github.com/semelhq/semel/internal/jsonscan"
)

// Prefix begins the names of headers that mirror arguments.
const Prefix = "Mcp-Param-"

// Decode is the value of a header that may be in Base64, because it isn't plain ASCII.
func Decode(value string) (text string, ok bool) {
	coded, prefix := strings.CutPrefix(value, "=?base64?")
	coded, suffix := strings.CutSuffix(coded, "?=")
	if !prefix || !suffix {
		return value, !strings.ContainsFunc(value, func(r rune) bool { return r > '~' || r < ' ' && r != '\t' })
	}
	raw, err := base64.StdEncoding.DecodeString(coded)
	return string(raw), err == nil
}

// Encode is a value as a header has it: in Base64 if it isn't plain ASCII, if white space around it
// would get lost, or if it looks as if it were encoded.
func Encode(text string) string {
	if strings.TrimSpace(text) == text && !strings.HasPrefix(text, "=?") && !strings.ContainsFunc(text, func(r rune) bool { return r > '~' || r < ' ' }) {
		return text
	}
	return "=?base64?" + base64.StdEncoding.EncodeToString([]byte(text)) + "?="
}

// Mirrored is an argument that stands in a header, too.
type Mirrored struct {
	path   []string
	header string
}

// In finds the arguments that a schema mirrors by x-mcp-header, among properties and the
// properties in them. An annotation anywhere else makes the tool invalid, and clients leave the
// tool out.
func In(schema []byte) []Mirrored { return in(schema, nil, nil) }

func in(schema []byte, path []string, list []Mirrored) []Mirrored {
	if len(path) > maxSchemaDepth {
		return list
	}
	for name, property := range jsonscan.Members(jsonscan.Member(schema, "properties")) {
		at := append(path[:len(path):len(path)], string(name))
		if header, is := jsonscan.Text(jsonscan.Member(property, "x-mcp-header")); is && header != "" {
			list = append(list, Mirrored{at, http.CanonicalHeaderKey(Prefix + header)})
		}
		list = in(property, at, list)
	}
	return list
}

// maxSchemaDepth bounds how deep a schema is read.
const maxSchemaDepth = 16

// Compare compares the headers that mirror arguments with the body. It describes the first
// difference, or returns nothing.
func Compare(header http.Header, arguments []byte, list []Mirrored) (why string) {
	for _, m := range list {
		value := jsonscan.At(arguments, m.path...)
		values := header[m.header]
		switch absent := value == nil || string(value) == "null"; {
		case absent && len(values) == 0:
		case absent:
			return "There is a header " + m.header + ", and its argument is not in the body."
		case len(values) != 1:
			return "The argument " + strings.Join(m.path, ".") + " has no header " + m.header + "."
		case !equal(values[0], value):
			return "The header " + m.header + " and the body differ."
		}
	}
	return ""
}

// equal compares a header with the value in the body that it mirrors: integers as numbers.
func equal(header string, value []byte) bool {
	said, ok := Decode(header)
	if !ok {
		return false
	}
	if text, is := jsonscan.Text(value); is {
		return said == text
	}
	if said == string(value) { // true and false, and most numbers
		return true
	}
	a, err := strconv.ParseFloat(said, 64)
	b, otherErr := strconv.ParseFloat(string(value), 64)
	return err == nil && otherErr == nil && a == b
}
