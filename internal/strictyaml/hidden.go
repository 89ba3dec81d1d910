package strictyaml

import (
	"regexp"
	"strconv"
	"strings"
)

// hidden is a value that errors don't show, because the file has only references to it, and it
// may be a secret.
type hidden struct{ value, written string }

// hide makes errors show the reference as written instead of its value, unless everybody can
// read the value there, as with a default.
func (r *Report) hide(value, written string) {
	if !strings.Contains(written, value) {
		r.hidden = append(r.hidden, hidden{value, written})
	}
}

// shortest is the length from which a text is hidden wherever it occurs. A shorter one isn't a
// secret, and occurs in any sentence.
const shortest = 3

var quoted = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// mask replaces the value, and any quoted part of it, in a sentence.
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
