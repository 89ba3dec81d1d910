package evidence

import (
	"encoding/hex"
)

// What follows writes members of objects in canonical JSON, each with a comma
// before it. Names are known to need no escapes.

// appendMember appends a member unless it is empty.
func appendMember(b []byte, name, value string) []byte {
	if value == "" {
		return b
	}
	b = append(append(append(b, `,"`...), name...), `":`...)
	return appendText(b, value)
}

// appendWord is appendMember for a word that needs no escapes.
func appendWord(b []byte, name, word string) []byte {
	if word == "" {
		return b
	}
	b = append(append(append(b, `,"`...), name...), `":"`...)
	return append(append(b, word...), '"')
}

// appendHex appends a member with a prefix and data in hexadecimal.
func appendHex(b []byte, name, prefix string, data []byte) []byte {
	b = append(append(append(b, `,"`...), name...), `":"`...)
	b = append(b, prefix...)
	return append(hex.AppendEncode(b, data), '"')
}

// appendHex16 appends n in 16 digits.
func appendHex16(b []byte, n uint64) []byte {
	for shift := 60; shift >= 0; shift -= 4 {
		b = append(b, hexDigits[n>>shift&15])
	}
	return b
}

const hexDigits = "0123456789abcdef"

// appendText appends valid UTF-8 as RFC 8785 has it: only what must be is escaped.
func appendText(b []byte, s string) []byte {
	b = append(b, '"')
	clean := 0
	for i := range len(s) {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		b = append(b, s[clean:i]...)
		clean = i + 1
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\b':
			b = append(b, `\b`...)
		case '\t':
			b = append(b, `\t`...)
		case '\n':
			b = append(b, `\n`...)
		case '\f':
			b = append(b, `\f`...)
		case '\r':
			b = append(b, `\r`...)
		default:
			b = append(b, `\u00`...)
			b = append(b, hexDigits[c>>4], hexDigits[c&15])
		}
	}
	return append(append(b, s[clean:]...), '"')
}
