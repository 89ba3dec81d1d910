package extract

import (
	"net/http"
	"strings"
)

// HeaderKey finds the one key of a request in the header with that name, of at most limit
// bytes. present says that there is such a header, valid or not; fault is then a sentence for
// the caller, or empty. If opaque is set, a bare key may be any text.
func HeaderKey(h http.Header, name string, limit int, opaque bool) (key string, present bool, fault string) {
	fields := h[name]
	switch len(fields) {
	case 0:
		return "", false, ""
	case 1:
	default:
		return "", true, "The " + name + " header was sent more than once. Send exactly one."
	}
	// A proxy on the way drops every header that Connection names, so such a key would
	// protect nothing behind the proxy.
	for _, v := range h["Connection"] {
		if namesHeader(v, name) {
			return "", true, "The Connection header names " + name + ", which would keep it from arriving."
		}
	}
	key, fault = parseKey(fields[0], opaque)
	switch {
	case fault != "":
		return "", true, "The " + name + " header " + fault
	case len(key) > limit:
		return "", true, "The " + name + " header is longer than this service accepts."
	}
	return key, true, ""
}

// parseKey reads a key in either of its two forms: an RFC 8941 string, or the bare text between
// the quotes. It refuses parameters after the item instead of ignoring them: nobody has defined
// one, and two keys that differ in a parameter were probably meant to differ. It also refuses a
// comma, a semicolon or a space in a bare key, because that looks like two keys joined on the
// way. Contracts with opaque keys, which are always bare, allow all three.
func parseKey(field string, opaque bool) (key, fault string) {
	if field == "" {
		return "", "is empty."
	}
	if field[0] != '"' {
		for i := range len(field) {
			c := field[i]
			if special := c == ' ' || c == '"' || c == ',' || c == ';'; !printable(c) || special && !opaque {
				return "", "has a character that a bare key can't have. Use visible ASCII, and quotes if it has a space, a comma or a semicolon."
			}
		}
		return field, ""
	}
	end := 1
	escapes := 0
	for ; ; end++ {
		if end == len(field) {
			return "", "has no closing quote."
		}
		c := field[end]
		if c == '"' {
			break
		}
		if c == '\\' {
			end++
			if end == len(field) || field[end] != '"' && field[end] != '\\' {
				return "", `has a backslash before something other than a quote or a backslash.`
			}
			escapes++
			continue
		}
		if !printable(c) {
			return "", "has a character outside printable ASCII."
		}
	}
	if end+1 != len(field) {
		return "", "has something after the key. Send one key and no parameters."
	}
	if end == 1 {
		return "", "is empty."
	}
	text := field[1:end]
	if escapes == 0 {
		return text, ""
	}
	var b strings.Builder
	b.Grow(len(text) - escapes)
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' {
			i++
		}
		b.WriteByte(text[i])
	}
	return b.String(), ""
}

// printable reports whether c is a visible ASCII character or a space.
func printable(c byte) bool { return c >= ' ' && c < 0x7f }

// namesHeader reports whether the comma-separated list has the header's name.
func namesHeader(list, name string) bool {
	for item := range strings.SplitSeq(list, ",") {
		if strings.EqualFold(strings.Trim(item, " \t"), name) {
			return true
		}
	}
	return false
}
