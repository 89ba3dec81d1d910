package canon

import (
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"sync"
)

// MaxDepth is how deep arrays and objects may nest: a scalar has depth 0, []
// has depth 1.
const MaxDepth = 1000

// MaxExponent bounds numbers in [Exact] mode: the decimal exponent of a value
// in scientific notation (9 in 1.5e9) is at most MaxExponent in magnitude.
const MaxExponent = 1_000_000

// A Mode says what a number's canonical text means.
type Mode int

const (
	// JCS is RFC 8785 to the letter: a number is the ECMAScript text of its nearest binary64.
	// Numbers too large for binary64 are refused, and ones too small become 0.
	JCS Mode = iota

	// Exact keeps the value: a number is its exact decimal digits in the
	// ECMAScript layout. Where the two modes differ, the value that was sent is
	// not the one that RFC 8785 would write: 9007199254740993 stays as it is and
	// 1e400 becomes 1e+400, while 0.10 is 0.1 in both. Equal values have equal
	// texts (1, 1.0 and 10e-1; 0 and -0) and different values different ones.
	// Magnitudes are bounded by [MaxExponent].
	Exact
)

// A SyntaxError says why a JSON text was refused and where.
type SyntaxError struct {
	// Offset counts bytes from the start of the input. It is the first byte that can't continue
	// a valid text (the input's length if more was expected), or the start of something that is
	// wrong as a whole: the second of two equal member names, an escape, an ill-formed UTF-8
	// sequence, a number out of range, the bracket that nests too deep.
	Offset int
	// Msg is the reason. It contains nothing from the input.
	Msg string
}

// Error returns the reason and the offset.
func (e *SyntaxError) Error() string {
	return fmt.Sprintf("invalid JSON at byte %d: %s", e.Offset, e.Msg)
}

// Canonicalize returns the canonical form of the one JSON text in src, in a new
// slice of its own. White space around the text is allowed. Its only error is a
// [*SyntaxError].
func Canonicalize(src []byte, mode Mode) ([]byte, error) {
	return Append(nil, src, mode)
}

// Append appends the canonical form of the one JSON text in src to dst and
// returns the extended slice. White space around the text is allowed. Its only
// error is a [*SyntaxError]; dst is then returned as it was. The two slices may
// share memory.
func Append(dst, src []byte, mode Mode) ([]byte, error) {
	p, err := read(src, mode, false)
	if err != nil {
		return dst, err
	}
	defer p.release()
	if dst == nil && len(p.objects) == 0 && cap(p.text) > maxKeptBytes {
		text := p.text
		p.text = nil
		return text, nil
	}
	dst = slices.Grow(dst, len(p.text))
	p.emit(func(text []byte) { dst = append(dst, text...) }, 0, uint32(len(p.text)), 0)
	return dst, nil
}

// Check returns the error that [Canonicalize] would, without making the canonical form.
func Check(src []byte, mode Mode) error {
	p, err := read(src, mode, true)
	if err == nil {
		p.release()
	}
	return err
}

// Write writes the canonical form of the one JSON text in src. It doesn't need memory for the
// whole form, and expects a w that never fails, such as a hash. Its only error is a
// [*SyntaxError]; then it has written nothing.
func Write(w io.Writer, src []byte, mode Mode) error { return write(w, src, mode, false) }

// WriteFramed is Write, preceded by the length of the form in bytes as an unsigned varint.
func WriteFramed(w io.Writer, src []byte, mode Mode) error { return write(w, src, mode, true) }

func write(w io.Writer, src []byte, mode Mode, framed bool) error {
	p, err := read(src, mode, false)
	if err != nil {
		return err
	}
	defer p.release()
	if framed {
		p.number = binary.AppendUvarint(p.number[:0], uint64(len(p.text)))
		_, _ = w.Write(p.number)
	}
	p.emit(func(text []byte) { _, _ = w.Write(text) }, 0, uint32(len(p.text)), 0)
	return nil
}

// read parses a text, only to check it or also to write it. Release the parser afterwards.
func read(src []byte, mode Mode, check bool) (*parser, error) {
	if len(src) > maxSource {
		return nil, &SyntaxError{Offset: maxSource, Msg: "longer than can be read"}
	}
	p := parsers.Get().(*parser)
	p.src, p.mode, p.check = src, mode, check
	// The text is rarely longer than its source. The bound keeps a long input that is refused
	// early from costing memory for its length.
	p.text = slices.Grow(p.text, min(len(src), maxFirstGrow)+shortText)
	if err := p.parse(); err != nil {
		p.release()
		return nil, err
	}
	p.members = kept(p.members, maxKeptRecords) // the next input takes memory, too
	return p, nil
}

const (
	// maxSource bounds the source, in bytes, so that offsets in the canonical form fit into 32
	// bits: a number may grow by up to 17 bytes for 5.
	maxSource = 512 << 20

	maxFirstGrow = 64 << 10

	// Bounds what a pooled parser may keep, for each of its buffers.
	maxKeptBytes   = 256 << 10
	maxKeptRecords = 4 << 10
)

var parsers = sync.Pool{New: func() any { return new(parser) }}

// release empties p and returns it to the pool, without buffers that an unusually large input
// has grown.
func (p *parser) release() {
	*p = parser{
		frames:  p.frames[:0], // never above MaxDepth
		text:    kept(p.text, maxKeptBytes),
		names:   kept(p.names, maxKeptBytes),
		number:  kept(p.number, maxKeptBytes),
		members: kept(p.members, maxKeptRecords),
		sorted:  kept(p.sorted, maxKeptRecords),
		objects: kept(p.objects, maxKeptRecords),
	}
	parsers.Put(p)
}

func kept[T any](s []T, limit int) []T {
	if cap(s) > limit {
		return nil
	}
	return s[:0]
}
