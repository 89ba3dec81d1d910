package evidence

import (
	"encoding/binary"

	"github.com/semelhq/semel"
)

// Entries are stored packed: without the names of their members, and with digests as
// bytes, in a third of the space of their JSON. What is hashed and shown is the JSON,
// which is made from that, always in the same way. So whatever is changed in the store
// shows in the JSON, or does not matter.

// packedForm is the first byte of what is packed. JSON begins with another one.
const packedForm = 1

// Unpack returns an entry of a [semel.EvidenceStore] with leaf and opening in their
// JSON. What can't be unpacked stays as it is, and is found out by its hash.
func Unpack(en semel.Entry) semel.Entry {
	var d dates
	unpack(&en, &d)
	return en
}

func unpack(en *semel.Entry, d *dates) {
	en.Leaf = unpackLeaf(en.Leaf, d)
	if o := (opening{}); o.unpack(en.Opening) {
		en.Opening = o.appendJSON(nil)
	}
}

// unpackLeaf is Unpack for a leaf.
func unpackLeaf(packed []byte, d *dates) []byte {
	if l := (leaf{}); l.unpack(packed) {
		return l.appendJSON(nil, d)
	}
	return packed
}

// appendFrame appends a text with its length before it.
func appendFrame(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// unpacker takes apart what is packed.
type unpacker struct {
	rest   []byte
	broken bool
}

// begin starts with what is packed.
func (u *unpacker) begin(packed []byte) {
	u.rest = packed
	u.broken = u.byte() != packedForm
}

// done reports whether that was all, and all of it could be read.
func (u *unpacker) done() bool { return !u.broken && len(u.rest) == 0 }

// take takes n bytes off.
func (u *unpacker) take(n uint64) []byte {
	if u.broken || n > uint64(len(u.rest)) {
		u.broken = true
		return nil
	}
	b := u.rest[:n]
	u.rest = u.rest[n:]
	return b
}

// fill reads as many bytes as to has.
func (u *unpacker) fill(to []byte) { copy(to, u.take(uint64(len(to)))) }

func (u *unpacker) byte() byte {
	if b := u.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (u *unpacker) uint64() uint64 {
	if b := u.take(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (u *unpacker) uvarint() uint64 {
	n, used := binary.Uvarint(u.rest)
	u.take(uint64(max(used, 0)))
	u.broken = u.broken || used <= 0
	return n
}

func (u *unpacker) text() string { return string(u.take(u.uvarint())) }
