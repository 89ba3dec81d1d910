package pebblestore

import (
	"cmp"
	"errors"
	"fmt"
	"io"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/wal"
)

// walScan is the content of one log: what Pebble can read of it, and what comes after the place
// that Pebble takes for its end.
type walScan struct {
	name   string
	number uint32
	size   int

	// Pebble can read the batches from first to last, if there are any. They end at end.
	first, last uint64
	end         int
	before      uint64 // the last batch before the log, if known
	gap         bool   // their numbers aren't consecutive, or some have none

	// damaged: the end certainly has a damaged part of the log.
	damaged bool
	// ambiguous: the end is damaged, or a write that a loss of power cut off.
	ambiguous bool

	// behind: valid parts of the log follow its end. Then next is the number of the first batch
	// among them that has its number, and durable is the newest batch that one of them calls
	// durable.
	behind        bool
	next, durable uint64
}

// scanWAL reads a log, which is hardly larger than a memory table. before is the last batch
// before the log.
func scanWAL(fs vfs.FS, dir, name string, before uint64) (*walScan, error) {
	f, err := fs.Open(fs.PathJoin(dir, name), vfs.SequentialReadsOption)
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(f)
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	number, _, _ := wal.ParseLogFilename(name)
	s := &walScan{name: name, number: uint32(number), size: len(content), before: before} // Pebble also shortens it
	s.search(content, s.read(content))
	return s, nil
}

// restOfBlock returns the block from a place on. whole is false if the file ends within the block.
func restOfBlock(content []byte, at int) (rest []byte, whole bool) {
	end := at - at%walBlock + walBlock
	return content[at:min(end, len(content))], end <= len(content)
}

// read reads like Pebble, and returns where that stops: at the end of the file, or at bytes
// that can't follow in the log.
func (s *walScan) read(content []byte) (at int) {
	record, inRecord := make([]byte, 0, progressEnd), false
	for at < len(content) {
		rest, whole := restOfBlock(content, at)
		// The rest of a block is zero if it is too short for a header. Pebble doesn't
		// check that if it is too short even for the oldest kind of header.
		if len(rest) < walHeader && (len(rest) < walNumber || allZero(rest)) {
			at += len(rest)
			continue
		}
		c, ok := parseWALChunk(rest)
		if !ok || c.number != s.number || c.begins() == inRecord {
			if inRecord || !closesWAL(rest, s.number) {
				s.examine(rest, at%walBlock == 0, whole)
			}
			break
		}
		if c.begins() {
			record = record[:0]
		}
		record = append(record, c.payload[:min(len(c.payload), progressEnd-len(record))]...)
		at += c.size()
		if inRecord = !c.ends(); !inRecord {
			s.end = at
			s.add(parseProgress(record))
		}
	}
	return at
}

// add notes a batch that Pebble can read.
func (s *walScan) add(p progress, ok bool) {
	if !ok {
		s.gap = true
		return
	}
	s.gap = s.gap || s.first != 0 && p.number != s.last+1
	s.first, s.last = cmp.Or(s.first, p.number), p.number
}

// examine looks at the first bytes that can't follow in the log.
func (s *walScan) examine(b []byte, blockStart, whole bool) {
	if allZero(b) {
		return // nothing was written there
	}
	if len(b) < walHeader {
		// The rest of a block should be zero, unless the file was cut off.
		s.damaged = whole && onlyBit(b)
		return
	}
	if c, ok := parseWALChunk(b); ok && c.number < s.number {
		return // it belongs to a log that used the file before
	}
	s.damaged = walBitFlipped(b, s.number)
	if walChunkNumber(b) == s.number {
		cut := !whole && walHeader+walChunkLength(b) > len(b)
		s.ambiguous = !cut
		return
	}
	// The rest of an older log may begin in the middle of a chunk, but not at the start of a
	// block.
	s.ambiguous = blockStart
}

// search looks for chunks of the log from a place on. A chunk begins where a block begins, and
// the next one follows it. After something that isn't a chunk, one may begin anywhere, but the
// content of a record may look like one.
func (s *walScan) search(content []byte, at int) {
	for inOrder := true; at < len(content); {
		rest, _ := restOfBlock(content, at)
		c, ok := parseWALChunk(rest)
		inOrder = inOrder || at%walBlock == 0
		if !ok || c.number > s.number {
			at, inOrder = at+1, false
			continue
		}
		if c.number == s.number {
			s.found(&c, at, inOrder)
		}
		at += c.size()
	}
}

// found notes a chunk after the end. If chunks aren't in order, it must begin a batch with a
// plausible number: the batches between the end and this one took some room.
func (s *walScan) found(c *walChunk, at int, inOrder bool) {
	p, ok := parseProgress(c.payload)
	ok = ok && c.begins()
	last := max(s.last, s.before)
	fits := ok && p.durable < p.number && p.number > last && p.number-last <= uint64(at-s.end)/progressEnd+1
	if !inOrder && !fits {
		return
	}
	s.behind = true
	if ok {
		s.next = cmp.Or(s.next, p.number)
		s.durable = max(s.durable, p.durable)
	}
}
