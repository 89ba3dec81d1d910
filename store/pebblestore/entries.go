package pebblestore

import (
	"encoding/binary"
	"errors"

	"github.com/cockroachdb/pebble/v2"
	"github.com/klauspost/compress/s2"

	"github.com/semelhq/semel"
)

// entries are entries of the evidence log on their way to the disk, encoded as a
// chunk has them. The callers encode, at the same time, so that the one goroutine
// that writes only has to copy.
type entries struct {
	subjects []semel.Subject
	leaves   []byte
	openings []byte
	opened   bool // some have an opening
}

// chunkBytes is about the most that a chunk holds. Whoever wants one entry reads a
// whole chunk.
const chunkBytes = 32 << 10

func (e *entries) reset() {
	e.subjects, e.leaves, e.openings, e.opened = e.subjects[:0], e.leaves[:0], e.openings[:0], false
}

// add appends one entry.
func (e *entries) add(en *semel.Entry) {
	e.subjects = append(e.subjects, en.Subject)
	e.leaves = binary.AppendUvarint(e.leaves, uint64(len(en.Leaf)))
	e.leaves = append(e.leaves, en.Subject[:]...)
	e.leaves = append(e.leaves, en.Leaf...)
	e.openings = appendOpening(e.openings, en.Opening)
	e.opened = e.opened || en.Opening != nil
}

// size is about what the entries take in a batch.
func (e *entries) size() int {
	return len(e.leaves) + len(e.openings) + 2*(chunkKeyLen+8)
}

// appendOpening appends an opening, where nil is none.
func appendOpening(b, opening []byte) []byte {
	if opening == nil {
		return append(b, 0)
	}
	b = binary.AppendUvarint(b, uint64(len(opening))+1)
	return append(b, opening...)
}

// appendChunks cuts entries into pieces that fit in chunks.
func appendChunks(to []*entries, list []semel.Entry) []*entries {
	var e *entries
	for i := range list {
		if e == nil || e.size() >= chunkBytes {
			e = &entries{}
			to = append(to, e)
		}
		e.add(&list[i])
	}
	return to
}

// fillEvidence adds the entries of a group to its batch, numbered from first on in
// the order in which they joined, and returns the number after them. What is
// written together lies together: most of what an entry would cost by itself is
// Pebble's work for a key.
func (g *group) fillEvidence(b *pebble.Batch, first uint64, p *packer) (end uint64) {
	end = first
	for rest := g.evidence; len(rest) > 0; {
		n, leaves, count, opened := 0, 0, 0, false
		for n < len(rest) && (n == 0 || leaves+len(rest[n].leaves) <= chunkBytes) {
			e := rest[n]
			leaves, count = leaves+len(e.leaves), count+len(e.subjects)
			opened = opened || e.opened
			n++
		}
		p.plain = p.plain[:0]
		for _, e := range rest[:n] {
			p.plain = append(p.plain, e.leaves...)
		}
		p.add(b, leafPrefix, end)
		if opened {
			p.plain = p.plain[:0]
			for _, e := range rest[:n] {
				p.plain = append(p.plain, e.openings...)
			}
			p.add(b, openingPrefix, end)
		}
		end += uint64(count)
		rest = rest[n:]
	}
	return end
}

// packer has the memory in which chunks are put together and compressed. Entries
// repeat each other's names and digits, so a chunk shrinks to about a third, and
// every byte that is not written is not synced, flushed and merged either.
type packer struct{ plain, packed []byte }

// add adds the chunk that is in p.plain.
func (p *packer) add(b *pebble.Batch, prefix byte, first uint64) {
	p.packed = s2.Encode(p.packed[:cap(p.packed)], p.plain)
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
