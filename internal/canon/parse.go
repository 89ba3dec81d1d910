package canon

import (
	"bytes"
	"slices"
)

// parser makes one pass over src and writes the canonical text of every value to text in
// document order. It notes objects with members out of canonical order in objects, and emit
// reorders them in a second pass that copies each byte once, however deep it nests.
type parser struct {
	src   []byte
	pos   int // next byte of src
	mode  Mode
	check bool // don't write text

	text   []byte // canonical, except for the order of members
	names  []byte // unescaped names of members of all open objects, if they had escapes
	number []byte // digits of the current number

	frames  []frame  // open arrays and objects, outermost first
	members []member // members of all open objects, innermost last
	sorted  []placed // members of the closed objects that emit has to reorder
	objects []object // by position
}

// frame is an open array or object.
type frame struct {
	object  bool
	ordered bool // the members so far are in canonical order
	record  int  // index in parser.objects
	members int  // length of parser.members at the opening brace
	names   int  // length of parser.names at the opening brace
}

func (p *parser) fail(offset int, msg string) error {
	return &SyntaxError{Offset: offset, Msg: msg}
}

// unexpected refuses the next byte, or the end of the input.
func (p *parser) unexpected(want string) error {
	if p.pos >= len(p.src) {
		return p.fail(len(p.src), "unexpected end, "+want+" expected")
	}
	return p.fail(p.pos, want+" expected")
}

// next skips white space and returns the byte after it, or 0 at the end. A zero byte is never
// valid in JSON, so callers needn't distinguish the two.
func (p *parser) next() byte {
	for p.pos < len(p.src) {
		c := p.src[p.pos]
		if c > ' ' || c != ' ' && c != '\n' && c != '\t' && c != '\r' {
			return c
		}
		p.pos++
	}
	return 0
}

func (p *parser) parse() error {
	if bytes.HasPrefix(p.src, []byte("\xef\xbb\xbf")) {
		return p.fail(0, "byte order mark")
	}
	for {
		opened, err := p.value()
		if err != nil {
			return err
		}
		if opened {
			continue
		}
		done, err := p.afterValue()
		if err != nil {
			return err
		}
		if done {
			return nil
		}
	}
}

// value reads one scalar or empty container, or opens a container up to where its first value
// belongs, and then reports true.
func (p *parser) value() (opened bool, err error) {
	p.reserve(shortText)
	switch c := p.next(); {
	case c == '"':
		return false, p.stringValue()
	case c == '-' || isDigit(c):
		return false, p.numberValue()
	case c == '{':
		return p.openObject()
	case c == '[':
		return p.openArray()
	case c == 't':
		return false, p.literal("true")
	case c == 'f':
		return false, p.literal("false")
	case c == 'n':
		return false, p.literal("null")
	}
	return false, p.unexpected("a value")
}

// shortText is enough for a short value and the punctuation around it.
const shortText = 64

// reserve makes room for n bytes of text and, if there isn't enough, for the rest of the
// document: only numbers can grow, and they have their own rule.
func (p *parser) reserve(n int) {
	if cap(p.text)-len(p.text) < n {
		p.text = slices.Grow(p.text, n+len(p.src)-p.pos)
	}
}

// afterValue reads on from a complete value to where the next value belongs. It reports true at
// the end of the input.
func (p *parser) afterValue() (done bool, err error) {
	for len(p.frames) > 0 {
		f := &p.frames[len(p.frames)-1]
		switch c := p.next(); {
		case c == ',' && f.object:
			p.endMember()
			p.punctuate(',')
			return false, p.memberName(f)
		case c == ',':
			p.punctuate(',')
			return false, nil
		case c == '}' && f.object:
			p.endMember()
			if err := p.closeObject(f); err != nil {
				return false, err
			}
		case c == ']' && !f.object:
			p.punctuate(']')
			p.frames = p.frames[:len(p.frames)-1]
		case f.object:
			return false, p.unexpected("',' or '}'")
		default:
			return false, p.unexpected("',' or ']'")
		}
	}
	p.next()
	if p.pos < len(p.src) {
		return false, p.fail(p.pos, "more after the value")
	}
	return true, nil
}

// punctuate consumes one structural byte and writes it.
func (p *parser) punctuate(c byte) {
	p.pos++
	p.text = append(p.text, c)
}

func (p *parser) push(f frame) error {
	if len(p.frames) == MaxDepth {
		return p.fail(p.pos, "nested too deep")
	}
	p.frames = append(p.frames, f)
	return nil
}

func (p *parser) openArray() (opened bool, err error) {
	if err := p.push(frame{}); err != nil {
		return false, err
	}
	p.punctuate('[')
	if p.next() == ']' {
		p.punctuate(']')
		p.frames = p.frames[:len(p.frames)-1]
		return false, nil
	}
	return true, nil
}

func (p *parser) openObject() (opened bool, err error) {
	err = p.push(frame{
		object:  true,
		ordered: true,
		record:  len(p.objects),
		members: len(p.members),
		names:   len(p.names),
	})
	if err != nil {
		return false, err
	}
	p.punctuate('{')
	p.objects = append(room(p.objects, 1, p.objectsLeft), object{start: uint32(len(p.text))})
	f := &p.frames[len(p.frames)-1]
	if p.next() == '}' {
		return false, p.closeObject(f)
	}
	return true, p.memberName(f)
}

func (p *parser) literal(word string) error {
	for i := range len(word) {
		if p.pos == len(p.src) || p.src[p.pos] != word[i] {
			return p.unexpected(word)
		}
		p.pos++
	}
	p.text = append(p.text, word...)
	return nil
}
