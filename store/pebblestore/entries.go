package pebblestore

import (
	"encoding/binary"
	"errors"

	"github.com/cockroachdb/pebble/v2"
	"github.com/klauspost/compress/s2"

	"github.com/semelhq/semel"
)

// chunkBytes is about the most that a chunk holds. Whoever wants one entry reads a
// whole chunk.
const chunkBytes = 32 << 10

// entriesSize is about what entries take in a batch, compressed.
func entriesSize(list []semel.Entry) int {
	n := 0
	for i := range list {
		n += len(list[i].Leaf) + len(list[i].Opening)
	}
	return n/2 + len(list)*len(semel.Subject{})
}

// appendOpening appends an opening, where nil is none.
func appendOpening(b, opening []byte) []byte {
	if opening == nil {
		return append(b, 0)
	}
	b = binary.AppendUvarint(b, uint64(len(opening))+1)
	return append(b, opening...)
}

// packer has the memory in which chunks are put together and compressed. Entries
// repeat each other's names and digits, so a chunk shrinks to about a third, and
// every byte that is not written is not synced, flushed and merged either.
type packer struct {
	leaves, openings []byte // of the chunks that are put together
	count            uint64
	opened           bool // some have an opening
	packed           []byte
}

// fill adds lists of entries to a batch, numbered from first on in their order, and
// returns the number after them. What is written together lies together: most of what an
// entry would cost by itself is Pebble's work for a key.
func (p *packer) fill(b *pebble.Batch, lists [][]semel.Entry, first uint64) (end uint64) {
	end = first
	for _, list := range lists {
		for i := range list {
			if len(p.leaves) > 0 && len(p.leaves)+len(list[i].Leaf) > chunkBytes {
				end += p.flush(b, end)
			}
			p.add(&list[i])
		}
	}
	return end + p.flush(b, end)
}

// add adds an entry to the chunks that are put together.
func (p *packer) add(en *semel.Entry) {
	p.count++
	p.leaves = binary.AppendUvarint(p.leaves, uint64(len(en.Leaf)))
	p.leaves = append(p.leaves, en.Subject[:]...)
	p.leaves = append(p.leaves, en.Leaf...)
	p.openings = appendOpening(p.openings, en.Opening)
	p.opened = p.opened || en.Opening != nil
}

// flush adds the chunks to a batch, and returns how many entries they have.
func (p *packer) flush(b *pebble.Batch, first uint64) (count uint64) {
	if p.count == 0 {
		return 0
	}
	p.pack(b, leafPrefix, first, p.leaves)
	if p.opened {
		p.pack(b, openingPrefix, first, p.openings)
	}
	count = p.count
	p.leaves, p.openings, p.count, p.opened = p.leaves[:0], p.openings[:0], 0, false
	return count
}

func (p *packer) pack(b *pebble.Batch, prefix byte, first uint64, chunk []byte) {
	p.packed = s2.Encode(p.packed[:cap(p.packed)], chunk)
	add := b.SetDeferred(chunkKeyLen, len(p.packed))
	putChunkKey(add.Key, prefix, first)
	copy(add.Value, p.packed)
	finish(add)
}

// maxChunk bounds what a damaged chunk can make its reader allocate. One entry of
// the largest size that anybody writes is far below it.
const maxChunk = 64 << 20

// unpack is the reverse of compressing a chunk. It uses to's memory if it can.
func unpack(to, value []byte) ([]byte, error) {
	if n, err := s2.DecodedLen(value); err != nil || n > maxChunk {
		return nil, errChunk
	}
	plain, err := s2.Decode(to[:cap(to)], value)
	if err != nil {
		return nil, errChunk
	}
	return plain, nil
}

var errChunk = errors.New("a chunk of the evidence log is damaged")

// chunk is a part of the log as it was read. Its entries share its memory.
type chunk struct {
	first    uint64
	subjects []semel.Subject
	leaves   [][]byte
	plain    []byte
}

// has reports whether the chunk has an entry.
func (c *chunk) has(number uint64) bool {
	return c.first <= number && number-c.first < uint64(len(c.leaves))
}

// parseLeaves reads a chunk of leaves, which stay in the memory of value.
func (c *chunk) parseLeaves(value []byte) error {
	c.subjects, c.leaves = c.subjects[:0], c.leaves[:0]
	for len(value) > 0 {
		n, used := binary.Uvarint(value)
		if used <= 0 || n > uint64(len(value)) || len(value)-used < len(semel.Subject{})+int(n) {
			return errChunk
		}
		value = value[used:]
		c.subjects = append(c.subjects, semel.Subject(value))
		value = value[len(semel.Subject{}):]
		c.leaves = append(c.leaves, value[:n:n])
		value = value[n:]
	}
	return nil
}

// parseOpenings reads the openings of n entries, which stay in the memory of value.
func parseOpenings(to [][]byte, value []byte) ([][]byte, error) {
	for len(value) > 0 {
		n, used := binary.Uvarint(value)
		if used <= 0 || n > uint64(len(value)-used)+1 {
			return to, errChunk
		}
		value = value[used:]
		if n == 0 {
			to = append(to, nil)
			continue
		}
		to = append(to, value[:n-1:n-1])
		value = value[n-1:]
	}
	return to, nil
}

// blank is a chunk of openings without those from one place to before another.
func blank(openings [][]byte, from, to int) (value []byte) {
	for i, opening := range openings {
		if from <= i && i < to {
			opening = nil
		}
		value = appendOpening(value, opening)
	}
	return s2.Encode(nil, value)
}
