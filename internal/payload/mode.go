package payload

import (
	"net/http"
	"strings"
)

// Mode says when two bodies are the same; see semelhttp.BodyMode, which says it to users.
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

// of is the mode for one request.
func (m Mode) of(header http.Header) Mode {
	if m != Auto {
		return m
	}
	var media string
	if types := header["Content-Type"]; len(types) > 0 {
		media = mediaOf(types[0])
	}
	switch {
	case isJSON(media):
		return JSON
	case strings.EqualFold(media, "application/x-www-form-urlencoded"):
		return Form
	case strings.EqualFold(media, "multipart/form-data"), strings.EqualFold(media, "multipart/mixed"):
		return Multipart
	}
	return Raw
}

// mediaOf is a media type without its parameters.
func mediaOf(field string) string {
	media, _, _ := strings.Cut(field, ";")
	return strings.TrimRight(media, " \t")
}

// IsJSON reports whether a Content-Type is that of JSON.
func IsJSON(contentType string) bool { return isJSON(mediaOf(contentType)) }

func isJSON(media string) bool {
	return strings.EqualFold(media, "application/json") || hasSuffixFold(media, "+json")
}

func hasSuffixFold(s, suffix string) bool {
	return len(s) >= len(suffix) && strings.EqualFold(s[len(s)-len(suffix):], suffix)
}
