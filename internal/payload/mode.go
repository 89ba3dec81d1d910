package payload

import "strings"

// Mode says when two bodies are the same; semelhttp.BodyMode explains it to users.
type Mode string

// The modes.
const (
	Auto      Mode = "auto"
	Raw       Mode = "raw"
	JSON      Mode = "json"
	Form      Mode = "form"
	Multipart Mode = "multipart"
)

// Modes lists them.
var Modes = []Mode{Auto, Raw, JSON, Form, Multipart}

// of returns the mode for one request, by its Content-Type values.
func (m Mode) of(types []string) Mode {
	if m != Auto {
		return m
	}
	var media string
	if len(types) > 0 {
		media, _, _ = strings.Cut(types[0], ";")
		media = strings.TrimRight(media, " \t")
	}
	switch {
	case strings.EqualFold(media, "application/json"), hasSuffixFold(media, "+json"):
		return JSON
	case strings.EqualFold(media, "application/x-www-form-urlencoded"):
		return Form
	case strings.EqualFold(media, "multipart/form-data"), strings.EqualFold(media, "multipart/mixed"):
		return Multipart
	}
	return Raw
}

// IsJSON reports whether a Content-Type means JSON.
func IsJSON(contentType string) bool { return Auto.of([]string{contentType}) == JSON }

func hasSuffixFold(s, suffix string) bool {
	return len(s) >= len(suffix) && strings.EqualFold(s[len(s)-len(suffix):], suffix)
}
