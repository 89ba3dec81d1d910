package canon

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"
)

// member is one name and value of an open object. An input may consist of little but members,
// so it is small; maxSource makes the offsets fit.
type member struct {
	prefix  uint64 // first eight bytes of the name, from sortPrefix
	name    uint32 // where the name is: in src, or, if unescaped, in parser.names
	nameLen uint32 // unescaped
	placed
}

// placed is a member's position in parser.text, from its name to its value.
type placed struct{ start, end uint32 }

// unescaped in member.name says that the name had escapes: its unescaped form is in
// parser.names, followed by the offset in src of its opening quote.
const unescaped = 1 << 31

// object is an object's position in parser.text and how to reorder it.
type object struct {
	start, end uint32 // between the braces
	lo, hi     uint32 // its members in parser.sorted; none if it is already in order
	next       uint32 // first of parser.objects that starts after this object
}

// room makes room for one more record, or at once for as many as the rest of the document may
// have: growing step by step takes several times the memory.
func room[T any](records []T, n int, left func() int) []T {
	switch {
	case len(records)+n <= cap(records):
		return records
	case len(records)+n <= fewRecords:
		return slices.Grow(records, max(16, n, len(records)))
	}
	return slices.Grow(records, n+left())
}

// fewRecords is a number of records that costs next to nothing.
const fewRecords = 1024

// marks yields the bytes that mark objects and exponents in the rest of the document, outside
// its strings, each with the text after it.
func (p *parser) marks(yield func(mark byte, rest []byte) bool) {
	for i := p.pos; i < len(p.src); i++ {
		switch c := p.src[i]; c {
		case '"':
			for i++; i < len(p.src) && p.src[i] != '"'; i++ {
				if p.src[i] == '\\' {
					i++
				}
			}
		case '{', '}', ':', 'e', 'E':
			if !yield(c, p.src[i+1:]) {
				return
			}
		}
	}
}

// membersLeft returns how many more members the document has.
func (p *parser) membersLeft() (n int) {
	for mark := range p.marks {
		if mark == ':' {
			n++
		}
	}
	return n
}

// objectsLeft returns how many more non-empty objects the document has.
func (p *parser) objectsLeft() (n int) {
	for mark, rest := range p.marks {
		if mark == '{' && !bytes.HasPrefix(bytes.TrimLeft(rest, " \n\r\t"), []byte("}")) {
			n++
		}
	}
	return n
}

// exponentsLeft returns at least how many more numbers with an exponent the document has.
func (p *parser) exponentsLeft() (n int) {
	for mark := range p.marks {
		if mark|0x20 == 'e' {
			n++
		}
	}
	return n
}

// openLeft returns how many more members than now can belong to open objects at a time.
func (p *parser) openLeft() (most int) {
	var begins [MaxDepth]uint32
	depth, open := 0, len(p.members)
	for i := range p.frames {
		if p.frames[i].object {
			begins[depth] = uint32(p.frames[i].members)
			depth++
		}
	}
	for mark := range p.marks {
		switch mark {
		case ':':
			open++
			most = max(most, open-len(p.members))
		case '{':
			if depth == MaxDepth {
				return most
			}
			begins[depth] = uint32(open)
			depth++
		case '}':
			if depth == 0 {
				return most
			}
			depth--
			open = int(begins[depth])
		}
	}
	return most
}

// memberName reads a name and its colon and begins a member of the innermost
// object, f.
func (p *parser) memberName(f *frame) error {
	if p.next() != '"' {
		return p.unexpected("a member name")
	}
	pos := p.pos
	m := member{name: uint32(pos), placed: placed{start: uint32(len(p.text))}}
	mark := len(p.names)
	escaped, err := p.scanString()
	if err != nil {
		return err
	}
	if escaped {
		m.name, m.nameLen = uint32(mark)|unescaped, uint32(len(p.names)-mark)
		p.names = binary.NativeEndian.AppendUint32(p.names, uint32(pos))
	} else {
		m.nameLen = uint32(p.pos - pos - len(`""`))
	}
	m.prefix = sortPrefix(p.name(&m))
	if n := len(p.members); n > f.members && f.ordered {
		f.ordered = p.compareNames(&p.members[n-1], &m) < 0
	}
	p.members = append(room(p.members, 1, p.openLeft), m)
	if p.next() != ':' {
		return p.unexpected("':'")
	}
	p.punctuate(':')
	return nil
}

// endMember notes that the last member's value is complete.
func (p *parser) endMember() {
	p.members[len(p.members)-1].end = uint32(len(p.text))
}

// closeObject ends the innermost object, f, at its closing brace: it refuses
// duplicate names, and leaves a record for emit if f or an object within it
// must be reordered.
func (p *parser) closeObject(f *frame) error {
	o := &p.objects[f.record]
	o.end, o.next = uint32(len(p.text)), uint32(len(p.objects))
	switch {
	case !f.ordered:
		members := p.members[f.members:]
		p.sort(members)
		if pos, found := p.duplicate(members); found {
			return p.fail(pos, "duplicate member name")
		}
		if p.check {
			break
		}
		o.lo = uint32(len(p.sorted))
		p.sorted = room(p.sorted, len(members), func() int { return f.members + p.membersLeft() })
		for i := range members {
			p.sorted = append(p.sorted, members[i].placed)
		}
		o.hi = uint32(len(p.sorted))
	case int(o.next) == f.record+1: // nothing to reorder, here or inside
		p.objects = p.objects[:f.record]
	}
	if p.check {
		p.objects = p.objects[:f.record]
	}
	p.members = p.members[:f.members]
	p.names = p.names[:f.names]
	p.frames = p.frames[:len(p.frames)-1]
	p.punctuate('}')
	return nil
}

// sort orders members by name, and equal names by position.
func (p *parser) sort(members []member) {
	slices.SortFunc(members, func(a, b member) int {
		if a.prefix != b.prefix {
			return cmp.Compare(a.prefix, b.prefix)
		}
		return cmp.Or(p.compareNames(&a, &b), cmp.Compare(a.start, b.start))
	})
}

// duplicate returns the position of the first name in the document that repeats
// an earlier one of the same object.
func (p *parser) duplicate(sorted []member) (pos int, found bool) {
	for i := 1; i < len(sorted); i++ {
		m := &sorted[i]
		if p.compareNames(&sorted[i-1], m) == 0 {
			if at := p.quote(m); !found || at < pos {
				pos, found = at, true
			}
		}
	}
	return pos, found
}

// emit gives put text[from:to] piece by piece, with the members of its objects in order. No
// object before objects[next] starts in that range. Calls nest at most MaxDepth deep, like the
// objects.
func (p *parser) emit(put func(text []byte), from, to, next uint32) {
	for int(next) < len(p.objects) && p.objects[next].start < to {
		o := p.objects[next]
		next++
		if o.lo == o.hi {
			continue // itself in order, but maybe not the objects inside
		}
		put(p.text[from:o.start])
		for i, m := range p.sorted[o.lo:o.hi] {
			if i > 0 {
				put(comma)
			}
			p.emit(put, m.start, m.end, p.firstIn(m, next, o.next))
		}
		from, next = o.end, o.next
	}
	put(p.text[from:to])
}

var comma = []byte{','}

// firstIn returns the first of the objects from lo to hi that starts in the member or after it.
func (p *parser) firstIn(m placed, lo, hi uint32) uint32 {
	if lo == hi {
		return hi // nothing to reorder inside
	}
	n, _ := slices.BinarySearchFunc(p.objects[lo:hi], m.start, func(o object, start uint32) int { return cmp.Compare(o.start, start) })
	return lo + uint32(n)
}

// name returns the unescaped name of m.
func (p *parser) name(m *member) []byte {
	from, at := p.src, m.name+uint32(len(`"`))
	if m.name&unescaped != 0 {
		from, at = p.names, m.name&^unescaped
	}
	return from[at : at+m.nameLen]
}

// quote returns the offset in src of the opening quote of m's name.
func (p *parser) quote(m *member) int {
	if m.name&unescaped == 0 {
		return int(m.name)
	}
	return int(binary.NativeEndian.Uint32(p.names[m.name&^unescaped+m.nameLen:]))
}

// compareNames orders names by their UTF-16 code units.
func (p *parser) compareNames(a, b *member) int {
	if a.prefix != b.prefix {
		return cmp.Compare(a.prefix, b.prefix)
	}
	// Prefixes are padded with zeros. If one of two names with equal prefixes has no further
	// bytes, they differ at most in trailing zero bytes.
	if min(a.nameLen, b.nameLen) <= prefixLen {
		return cmp.Compare(a.nameLen, b.nameLen)
	}
	return compareUTF16(p.name(a)[prefixLen:], p.name(b)[prefixLen:])
}

const prefixLen = 8

// sortPrefix packs the first bytes of name so that comparing two prefixes orders them like
// compareUTF16.
func sortPrefix(name []byte) uint64 {
	var b [prefixLen]byte
	copy(b[:], name)
	prefix := binary.BigEndian.Uint64(b[:])
	if prefix&0x8080808080808080 == 0 {
		return prefix
	}
	for i, c := range b {
		b[i] = utf16Rank(c)
	}
	return binary.BigEndian.Uint64(b[:])
}

// compareUTF16 orders valid UTF-8 by its UTF-16 code units.
func compareUTF16(a, b []byte) int {
	n, i := min(len(a), len(b)), 0
	for i+8 <= n && binary.NativeEndian.Uint64(a[i:]) == binary.NativeEndian.Uint64(b[i:]) {
		i += 8 // an attacker may choose long common prefixes to make sorting slow
	}
	for ; i < n; i++ {
		if a[i] != b[i] {
			return cmp.Compare(utf16Rank(a[i]), utf16Rank(b[i]))
		}
	}
	return cmp.Compare(len(a), len(b))
}

// utf16Rank ranks the bytes of UTF-8 so that comparing ranks compares UTF-16 code units. Byte
// order is code point order, and differs from it only in that surrogates (U+D800 to U+DFFF),
// which stand for all code points from U+10000 (lead bytes F0 to F4), sort before U+E000 to
// U+FFFF (lead bytes EE and EF). Two strings that first differ in a continuation byte have
// equal lead bytes there, so ranking bytes one by one is enough.
func utf16Rank(c byte) byte {
	switch {
	case c < 0xee:
		return c
	case c < 0xf0:
		return c + 5 // ee, ef -> f3, f4
	default:
		return c - 2 // f0..f4 -> ee..f2
	}
}
