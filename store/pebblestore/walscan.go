package pebblestore

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// walScan is what one log holds: what Pebble can read of it, and what comes after the place
// that Pebble takes for its end.
type walScan struct {
	name   string
	number uint32
	size   int64

	// Pebble can read the batches from first to last, if there are any. They end at end.
	first, last uint64
	end         int64
	before      uint64 // the last batch before the log, if that is known
	gap         bool   // their numbers aren't consecutive, or some have none

	// damaged: what is at the end is certainly a damaged part of the log.
	damaged bool
	// ambiguous: it may be that, or a write that was cut off by a loss of power.
	ambiguous bool

	// behind: valid parts of the log follow its end. Then next is the number of the first
	// batch among them, if one has its number, and durable is the newest batch that one of
	// them says was durable.
	behind        bool
	next, durable uint64

	stopped  bool // at the end
	inRecord bool
	record   []byte // its beginning
}

// scanWAL reads a log: all of it, or just enough to find its first batch. Before is the last
// batch before the log.
func scanWAL(fs vfs.FS, dir, name string, before uint64, all bool) (_ *walScan, err error) {
	f, err := fs.Open(fs.PathJoin(dir, name), vfs.SequentialReadsOption)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	number, _ := walFileNumber(name)
	s := &walScan{name: name, number: uint32(number), before: before} // Pebble shortens it too
	block := make([]byte, walBlock)
	for all || !s.stopped && s.first == 0 && !s.gap {
		n, err := io.ReadFull(f, block)
		s.block(block[:n])
		s.size += int64(n)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
	}
	return s, nil
}

// walFileNumber is the number of a log, by the name of its file.
func walFileNumber(name string) (number uint64, ok bool) {
	digits, ok := strings.CutSuffix(name, walSuffix)
	number, err := strconv.ParseUint(digits, 10, 64)
	return number, ok && err == nil
}

const walSuffix = ".log"

// block reads the next block, of which there is less at the end of the file.
//
// Up to the end of the log it reads as Pebble does. After that it looks for valid chunks of
// the log. One begins where a block begins, and the next one follows it. After something
// that isn't a chunk, one may begin anywhere, but the content of a record may look like one.
func (s *walScan) block(b []byte) {
	inOrder := true
	for at := 0; at < len(b); {
		rest := b[at:]
		var c walChunk
		valid := len(rest) >= walHeader && walChunkNumber(rest) <= s.number
		if valid {
			c, valid = parseWALChunk(rest)
		}
		if !s.stopped && (!valid || c.number != s.number || c.begins() == s.inRecord) {
			// The rest of a block is zero if it is too short for a header. Pebble doesn't
			// check that if it is too short even for the oldest kind of header.
			if len(b) == walBlock && len(rest) < walHeader && (len(rest) < walNumber || allZero(rest)) {
				return
			}
			s.stopped = true
			s.examine(rest, at == 0, len(b) == walBlock)
		}
		switch {
		case !valid:
			at, inOrder = at+1, false
			continue
		case !s.stopped:
			s.read(&c, s.size+int64(at))
		case c.number == s.number:
			s.found(&c, s.size+int64(at), inOrder)
		}
		at += c.size()
	}
}

// read notes a chunk that Pebble can read, and the batch that ends with it.
func (s *walScan) read(c *walChunk, at int64) {
	if c.begins() {
		s.record = s.record[:0]
	}
	s.record = append(s.record, c.payload[:min(len(c.payload), progressEnd-len(s.record))]...)
	if s.inRecord = !c.ends(); s.inRecord {
		return
	}
	s.end = at + int64(c.size())
	p, ok := parseProgress(s.record)
	if !ok {
		s.gap = true
		return
	}
	s.gap = s.gap || s.first != 0 && p.number != s.last+1
	s.first, s.last = cmp.Or(s.first, p.number), p.number
}

// examine looks at the first bytes that aren't a valid chunk of the log.
func (s *walScan) examine(b []byte, blockStart, whole bool) {
	if allZero(b) || closesWAL(b, s.number) && !s.inRecord {
		return // nothing was written there, or the log was closed there
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
	// What an older log has left may begin in the middle of a chunk, but not where a block
	// begins.
	s.ambiguous = blockStart
}

// found notes a chunk after the end. Where chunks aren't in order, it must begin a batch with a
// number that fits: the batches between the end and this one took some room.
func (s *walScan) found(c *walChunk, at int64, inOrder bool) {
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
