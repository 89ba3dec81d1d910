package judge

import (
	"encoding/json"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxWords bounds the text that [Answer.Words] returns, in bytes.
const MaxWords = 500

// maxCode bounds the code that [Answer.Words] returns, in bytes.
const maxCode = 64

// Words returns the program's own explanation of an answer that isn't a success: a code for
// programs, and one line of text for people. They are in the body, which has to be a JSON
// object, such as a problem document (RFC 9457): the code is its member code or reason, and the
// text the first of summary, detail, message, error and title. It also looks into an object
// error. Both are empty if the body has neither.
//
// The program may belong to anybody, so the code is a short word of ASCII, and the text has no
// control characters and at most [MaxWords] bytes.
func (a *Answer) Words() (code, text string) {
	var members map[string]json.RawMessage
	if json.Unmarshal(a.json(), &members) != nil {
		return "", ""
	}
	code, text = wordsOf(members)
	var inner map[string]json.RawMessage
	if json.Unmarshal(members["error"], &inner) == nil {
		innerCode, innerText := wordsOf(inner)
		if code == "" {
			code = innerCode
		}
		if text == "" {
			text = innerText
		}
	}
	return code, text
}

func wordsOf(members map[string]json.RawMessage) (code, text string) {
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
	if len(s) <= MaxWords {
		return s
	}
	const more = "…"
	end := MaxWords - len(more)
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + more
}
