package canon

import (
	"slices"
	"unicode/utf16"
	"unicode/utf8"
)

// AppendString appends the canonical JSON string for s to dst: s in quotes with
// the fewest and shortest escapes. If s is not valid UTF-8 it has none; the
// error is then a [*SyntaxError] with the offset in s, and dst is returned as
// it was.
func AppendString(dst []byte, s string) ([]byte, error) {
	if !utf8.ValidString(s) {
		return dst, &SyntaxError{Offset: invalidUTF8([]byte(s)), Msg: invalidUTF8Msg}
	}
	return appendQuoted(dst, s), nil
}

const invalidUTF8Msg = "invalid UTF-8"

// special marks the bytes that can't appear unescaped in a JSON string.
var special = func() (t [256]bool) {
	for c := range ' ' {
		t[c] = true
	}
	t['"'], t['\\'] = true, true
	return t
}()

// escapes maps the letter of a short escape to its byte, and shortEscapes is the reverse. The
// escape \/ is read but never written.
var escapes, shortEscapes = func() (from, to [256]byte) {
	from['/'] = '/'
	for letter, c := range map[byte]byte{
		'"': '"', '\\': '\\', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t',
	} {
		from[letter], to[c] = c, letter
	}
	return from, to
}()

// appendQuoted appends the canonical JSON string for the valid UTF-8 in s.
func appendQuoted[S string | []byte](dst []byte, s S) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	done := 0
	for i := range len(s) {
		c := s[i]
		if !special[c] {
			continue
		}
		dst = append(dst, s[done:i]...)
		if letter := shortEscapes[c]; letter != 0 {
			dst = append(dst, '\\', letter)
		} else {
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&0xf])
		}
		done = i + 1
	}
	dst = append(dst, s[done:]...)
	return append(dst, '"')
}

// invalidUTF8 returns the offset of the first ill-formed sequence in b, which must have one.
func invalidUTF8(b []byte) int {
	offset := 0
	for {
		r, size := utf8.DecodeRune(b[offset:])
		if r == utf8.RuneError && size <= 1 {
			return offset
		}
		offset += size
	}
}

// stringValue reads a string as a value.
func (p *parser) stringValue() error {
	mark := len(p.names)
	_, err := p.scanString()
	p.names = p.names[:mark]
	return err
}

// scanString reads the string that starts at pos and writes its canonical text.
// It reports whether the string holds escapes; its unescaped form is then at
// the end of names.
func (p *parser) scanString() (escaped bool, err error) {
	start := p.pos
	p.pos++
	if err := p.scanPlain(); err != nil {
		return false, err
	}
	if p.src[p.pos] == '"' {
		p.pos++
		p.reserve(p.pos - start + shortText)
		p.text = append(p.text, p.src[start:p.pos]...)
		return false, nil
	}
	mark := len(p.names)
	p.keep(p.src[start+1 : p.pos])
	for p.src[p.pos] != '"' {
		if err := p.unescape(); err != nil {
			return true, err
		}
		plain := p.pos
		if err := p.scanPlain(); err != nil {
			return true, err
		}
		p.keep(p.src[plain:p.pos])
	}
	p.pos++
	p.reserve(p.pos - start + shortText) // without escapes it gets shorter
	p.text = appendQuoted(p.text, p.names[mark:])
	return true, nil
}

// keep appends unescaped text to names, with room for an escape after it. It doubles the room:
// appending would take more than twice as much memory in the end.
func (p *parser) keep(plain []byte) {
	if n := len(plain) + utf8.UTFMax; cap(p.names)-len(p.names) < n {
		p.names = slices.Grow(p.names, max(n, len(p.names)))
	}
	p.names = append(p.names, plain...)
}

// scanPlain skips unescaped bytes, up to the closing quote or the next escape.
func (p *parser) scanPlain() error {
	start, seen := p.pos, byte(0)
	i := start
	for ; i < len(p.src); i++ {
		c := p.src[i]
		if special[c] {
			break
		}
		seen |= c
	}
	p.pos = i
	// No valid sequence contains a byte that ends the loop, so each run of plain bytes is valid
	// or invalid by itself.
	if seen >= utf8.RuneSelf && !utf8.Valid(p.src[start:i]) {
		return p.fail(start+invalidUTF8(p.src[start:i]), invalidUTF8Msg)
	}
	if i == len(p.src) {
		return p.fail(i, "unterminated string")
	}
	if p.src[i] < ' ' {
		return p.fail(i, "control character in string")
	}
	return nil
}

// unescape reads the escape at pos and appends its meaning to names.
func (p *parser) unescape() error {
	start := p.pos
	if start+1 == len(p.src) {
		return p.fail(len(p.src), "unterminated string")
	}
	if letter := p.src[start+1]; letter != 'u' {
		c := escapes[letter]
		if c == 0 {
			return p.fail(start, "invalid escape")
		}
		p.names = append(p.names, c)
		p.pos = start + 2
		return nil
	}
	r, ok := hex4(p.src[start+2:])
	if !ok {
		return p.fail(start, "invalid escape")
	}
	p.pos = start + 6
	if utf16.IsSurrogate(r) {
		low, ok := rune(0), false
		if rest := p.src[p.pos:]; len(rest) > 2 && rest[0] == '\\' && rest[1] == 'u' {
			low, ok = hex4(rest[2:])
		}
		// DecodeRune returns U+FFFD for everything but a high and a low half.
		if r = utf16.DecodeRune(r, low); !ok || r == utf8.RuneError {
			return p.fail(start, "surrogate without its partner")
		}
		p.pos += 6
	}
	p.names = utf8.AppendRune(p.names, r)
	return nil
}

// AppendUnescaped appends the meaning of a JSON string that has raw between its quotes. It
// reads half a surrogate pair as U+FFFD, and reports false for any other invalid escape.
func AppendUnescaped(dst, raw []byte) ([]byte, bool) {
	p := parser{src: raw, names: dst}
	for p.pos < len(raw) {
		if c := raw[p.pos]; c != '\\' {
			p.names = append(p.names, c)
			p.pos++
			continue
		}
		start := p.pos
		if err := p.unescape(); err != nil && p.pos == start {
			return nil, false
		} else if err != nil {
			p.names = utf8.AppendRune(p.names, utf8.RuneError)
		}
	}
	return p.names, true
}

// hex4 reads four hexadecimal digits at the start of b.
func hex4(b []byte) (r rune, ok bool) {
	if len(b) < 4 {
		return 0, false
	}
	for _, c := range b[:4] {
		switch {
		case isDigit(c):
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}
