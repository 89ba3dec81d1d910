package selector

import (
	"bytes"
	"errors"
	"slices"
	"strings"
)

// Condition is a place in an answer and what has to be there, written as SELECTOR=TEXT:
//
//	header:Location=/sign-in*
//	json:/errors/0/extensions/code=THROTTLED
//	json:/data=[]
//
// The text after the equals sign is the whole value, and a star in it stands for any text. A
// header that comes several times matches if one of its values does. In JSON the value is a
// string, a number or a boolean; [] alone is an empty list, and with json:=[] the body is
// one.
type Condition struct {
	Selector
	want string
}

// emptyList is the text for a list without items.
const emptyList = "[]"

// ParseCondition reads a condition.
func ParseCondition(text string) (Condition, error) {
	where, want, ok := strings.Cut(text, "=")
	if !ok || want == "" {
		return Condition{}, errors.New("there is no value after the selector")
	}
	if where == string(JSON)+":" && want == emptyList {
		return Condition{Selector{text: where, Source: JSON}, want}, nil
	}
	s, err := Parse(where, []Source{Header, JSON})
	return Condition{s, want}, err
}

// Holds reports whether an answer fulfils the condition.
func (c Condition) Holds(in *Input) bool {
	if c.want == emptyList && c.Source == JSON {
		if in.JSON == nil {
			return false
		}
		at, found := c.pointer.find(in.JSON, !in.Raw)
		return found && bytes.Equal(in.JSON[at.from:at.to], []byte(emptyList))
	}
	return slices.ContainsFunc(c.Texts(in), func(text string) bool { return matches(c.want, text) })
}

// matches reports whether a text matches the pattern, in which a star stands for any text.
func matches(pattern, text string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == text
	}
	text, ok := strings.CutPrefix(text, parts[0])
	last := parts[len(parts)-1]
	for _, part := range parts[1 : len(parts)-1] {
		var found bool
		_, text, found = strings.Cut(text, part)
		ok = ok && found
	}
	return ok && strings.HasSuffix(text, last)
}
