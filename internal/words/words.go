// Package words finds a program's own explanation in an answer that isn't a success.
package words

import (
	"cmp"
	"encoding/json"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Max bounds the text that [Of] returns, in bytes.
const Max = 500

// maxCode bounds the code that [Of] returns, in bytes.
const maxCode = 64

// Of returns the explanation in a JSON object, such as a problem document (RFC 9457): a code for
// programs, its member code or reason, and one line of text for people, the first of summary,
// detail, message, error and title. It also looks into an object error. Both are empty if body
// has neither.
//
// The program may belong to anybody, so the code is a short word of ASCII, and the text has no
// control characters and at most [Max] bytes.
func Of(body []byte) (code, text string) {
	var members, inner map[string]json.RawMessage
	if json.Unmarshal(body, &members) != nil {
		return "", ""
	}
	code, text = in(members)
	if json.Unmarshal(members["error"], &inner) == nil {
		innerCode, innerText := in(inner)
		code, text = cmp.Or(code, innerCode), cmp.Or(text, innerText)
	}
	return code, text
}

func in(members map[string]json.RawMessage) (code, text string) {
	first := func(clean func(string) string, names ...string) string {
		for _, name := range names {
			var s string
			if json.Unmarshal(members[name], &s) == nil && clean(s) != "" {
				return clean(s)
			}
		}
		return ""
	}
	return first(asCode, "code", "reason"), first(asLine, "summary", "detail", "message", "error", "title")
}

// asCode returns s if it is a word that can serve as a reason.
func asCode(s string) string {
	other := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '-' && r != '.'
	}
	if len(s) > maxCode || strings.ContainsFunc(s, other) {
		return ""
	}
	return s
}

// asLine returns s as one line that a terminal can show.
func asLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, s)
	if len(s) <= Max {
		return s
	}
	const more = "…"
	end := Max - len(more)
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + more
}
