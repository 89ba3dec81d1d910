package strictyaml

import (
	"regexp"
	"strconv"
	"strings"
)

// hidden is a value that errors don't show, because it isn't in the file: references
// stand for it there, and it may be a secret.
type hidden struct{ value, written string }

// hide makes errors show the reference as written and not its value, unless everybody can read
// the value there, as with a default.
func (r *Report) hide(value, written string) {
	if !strings.Contains(written, value) {
		r.hidden = append(r.hidden, hidden{value, written})
	}
}

// shortest is the length of a text from which on it is hidden wherever it occurs. A
// shorter one is no secret, and occurs in any sentence.
const shortest = 3

var quoted = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// mask replaces the value in a sentence, and whatever the sentence quotes of it.
func (h *hidden) mask(text string) string {
	if len(h.value) >= shortest {
		text = strings.ReplaceAll(text, h.value, h.written)
	}
	return quoted.ReplaceAllStringFunc(text, func(q string) string {
		part, err := strconv.Unquote(q)
		if err == nil && (part == h.value || len(part) >= shortest && strings.Contains(h.value, part)) {
			return `"` + h.written + `"`
		}
		return q
	})
}
