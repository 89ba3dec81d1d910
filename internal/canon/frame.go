package canon

import "encoding/binary"

// Frame appends s preceded by its length, so that framed members in a row can't imitate other
// members.
func Frame[T ~string | ~[]byte](b []byte, s T) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

// FrameList appends the number of texts, and each of them framed.
func FrameList(b []byte, texts []string) []byte {
	b = binary.AppendUvarint(b, uint64(len(texts)))
	for _, s := range texts {
		b = Frame(b, s)
	}
	return b
}

// Unframe removes a text that [Frame] appended. It reports false if there is none.
func Unframe(b []byte) (text, rest []byte, ok bool) {
	size, n := binary.Uvarint(b)
	if n <= 0 || size > uint64(len(b)-n) {
		return nil, nil, false
	}
	end := n + int(size)
	return b[n:end], b[end:], true
}
