package canon

import (
	"cmp"
	"encoding/binary"
	"io"
	"math"
	"slices"
)

// member is one name and value of an open object. Somebody may send nothing but members,
// so what is kept of each is small; maxSource is what makes offsets fit.
type member struct {
	prefix  uint64 // first eight bytes of the name as sortPrefix gives them
	pos     uint32 // offset in src of the name's opening quote
	name    uint32 // offset of the name in parser.names, or verbatim
	nameLen uint32 // unescaped
	placed
}

// placed is where a member stands.
type placed struct {
	start, end uint32 // in parser.text, from its name to its value
	first      uint32 // first of parser.objects that starts in the member or after it
}

// verbatim as member.name says that the name stands unescaped in src.
const verbatim = math.MaxUint32

// object is where an object stands in parser.text and how to reorder it.
type object struct {
	start, end uint32 // between the braces
	lo, hi     uint32 // its members in parser.sorted; none if it is in order as it is
	next       uint32 // first of parser.objects that starts after this object
}

// room makes room for n more records. For many it is made once, for what is left of the
// document: growing by and by takes several times the memory.
func room[T any](records []T, n int, left func() int) []T {
	switch {
	case len(records)+n <= cap(records):
		return records
	case len(records)+n <= fewRecords:
		return slices.Grow(records, max(16, n, len(records)))
	}
	return slices.Grow(records, n+left())
}

// fewRecords is how many records make no difference.
const fewRecords = 1024

// left counts a mark outside of strings in what is left of the document.
func (p *parser) left(mark byte) (n int) {
	quoted := false
	for i := p.pos; i < len(p.src); i++ {
		switch c := p.src[i]; {
		case c == '"':
			quoted = !quoted
		case quoted && c == '\\':
			i++
		case !quoted && c == mark:
			n++
		}
	}
	return n
}

// memberName reads a name and its colon and begins a member of the innermost
// object, f.
func (p *parser) memberName(f *frame) error {
	if p.next() != '"' {
		return p.unexpected("a member name")
	}
	pos := p.pos
	m := member{pos: uint32(pos), name: verbatim, placed: placed{start: uint32(len(p.text)), first: uint32(len(p.objects))}}
	mark := len(p.names)
	escaped, err := p.scanString()
	if err != nil {
		return err
	}
	if escaped {
		m.name, m.nameLen = uint32(mark), uint32(len(p.names)-mark)
	} else {
		m.nameLen = uint32(p.pos - pos - len(`""`))
	}
	m.prefix = sortPrefix(p.name(&m))
	if n := len(p.members); n > f.members && f.ordered {
		f.ordered = p.compareNames(&p.members[n-1], &m) < 0
	}
	p.members = append(room(p.members, 1, func() int { return p.left(':') }), m)
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
		o.lo = uint32(len(p.sorted))
		p.sorted = room(p.sorted, len(members), func() int { return f.members + p.left(':') })
		for i := range members {
			p.sorted = append(p.sorted, members[i].placed)
		}
		o.hi = uint32(len(p.sorted))
	case int(o.next) == f.record+1: // nothing to reorder, neither here nor within
		p.objects = p.objects[:f.record]
	}
	p.members = p.members[:f.members]
	p.names = p.names[:f.names]
	p.frames = p.frames[:len(p.frames)-1]
	p.punctuate('}')
	return nil
}

// sort orders members by name, those of equal names by position.
func (p *parser) sort(members []member) {
	slices.SortFunc(members, func(a, b member) int {
		if a.prefix != b.prefix {
			return cmp.Compare(a.prefix, b.prefix)
		}
		return cmp.Or(p.compareNames(&a, &b), cmp.Compare(a.pos, b.pos))
	})
}

// duplicate returns the position of the first name in the document that repeats
// an earlier one of the same object.
func (p *parser) duplicate(sorted []member) (pos int, found bool) {
	for i := 1; i < len(sorted); i++ {
		m := &sorted[i]
		if (!found || int(m.pos) < pos) && p.compareNames(&sorted[i-1], m) == 0 {
			pos, found = int(m.pos), true
		}
	}
	return pos, found
}

// emit appends text[from:to] to dst with the members of its objects in order.
// No object before objects[next] starts in that range. Calls nest at most
// MaxDepth deep, as the objects do.
func (p *parser) emit(dst []byte, from, to, next uint32) []byte {
	for int(next) < len(p.objects) && p.objects[next].start < to {
		o := p.objects[next]
		if o.lo == o.hi {
			next++ // in order itself, but maybe not the objects within
			continue
		}
		dst = append(dst, p.text[from:o.start]...)
		for i, m := range p.sorted[o.lo:o.hi] {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = p.emit(dst, m.start, m.end, m.first)
		}
		from, next = o.end, o.next
	}
	return append(dst, p.text[from:to]...)
}

// pour is emit for a writer.
func (p *parser) pour(w io.Writer, from, to, next uint32) {
	for int(next) < len(p.objects) && p.objects[next].start < to {
		o := p.objects[next]
		if o.lo == o.hi {
			next++
			continue
		}
		_, _ = w.Write(p.text[from:o.start])
		for i, m := range p.sorted[o.lo:o.hi] {
			if i > 0 {
				_, _ = w.Write(comma)
			}
			p.pour(w, m.start, m.end, m.first)
		}
		from, next = o.end, o.next
	}
	_, _ = w.Write(p.text[from:to])
}

var comma = []byte{','}

// name is the unescaped name of m.
func (p *parser) name(m *member) []byte {
	if m.name == verbatim {
		start := m.pos + uint32(len(`"`))
		return p.src[start : start+m.nameLen]
	}
	return p.names[m.name : m.name+m.nameLen]
}

// compareNames orders names by their UTF-16 code units.
func (p *parser) compareNames(a, b *member) int {
	if a.prefix != b.prefix {
		return cmp.Compare(a.prefix, b.prefix)
	}
	// A prefix is filled up with zeros. Names with equal prefixes of which one
	// has no further bytes differ at most in trailing zero bytes.
	if min(a.nameLen, b.nameLen) <= prefixLen {
		return cmp.Compare(a.nameLen, b.nameLen)
	}
	return compareUTF16(p.name(a)[prefixLen:], p.name(b)[prefixLen:])
}

const prefixLen = 8

// sortPrefix packs the first bytes of name so that comparing two prefixes
// compares these bytes as compareUTF16 does.
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

// compareUTF16 orders valid UTF-8 as its UTF-16 code units would be ordered.
func compareUTF16(a, b []byte) int {
	n, i := min(len(a), len(b)), 0
	for i+8 <= n && binary.NativeEndian.Uint64(a[i:]) == binary.NativeEndian.Uint64(b[i:]) {
		i += 8 // long common beginnings may be chosen to make sorting slow
	}
	for ; i < n; i++ {
		if a[i] != b[i] {
			return cmp.Compare(utf16Rank(a[i]), utf16Rank(b[i]))
		}
	}
	return cmp.Compare(len(a), len(b))
}

// utf16Rank gives the bytes of UTF-8 an order in which comparing bytes compares
// UTF-16 code units. Byte order is code point order, and differs from it only
// in that surrogates (U+D800 to U+DFFF), which stand for all code points from
// U+10000 (lead bytes F0 to F4), sort before U+E000 to U+FFFF (lead bytes EE
// and EF). Two strings that first differ in a continuation byte have equal lead
// bytes there, so ranking bytes one by one is enough.
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
