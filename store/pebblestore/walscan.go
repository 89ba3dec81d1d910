package pebblestore

import (
	"errors"
	"fmt"
	"io"
	"math/bits"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// walScan is what one log holds: first what Pebble can read of it, and then what there
// is behind the place at which Pebble takes it for ended.
type walScan struct {
	name   string
	number uint32
	size   int64

	// The batches from first to last can be read, if there are any. They end at end.
	first, last uint64
	end         int64
	before      uint64 // the last batch before the log, if that is known
	gap         bool   // the batches are not numbered one after the other
	unmarked    bool   // some don't say their number: an earlier program wrote them

	// damaged: what is at the end is certainly a damaged part of the log.
	damaged bool
	// doubtful: it may be that, or a write that was cut off by a loss of power.
	doubtful bool

	// behind: there are valid parts of the log behind. Then next is the number of the
	// first batch among them, if any says it, and durable is the newest batch that they
	// know to be durable.
	behind        bool
	next, durable uint64

	stopped  bool // at the end
	header   int  // the size of the headers
	inRecord bool
	record   []byte // its beginning
}

// scanWAL reads a log, which begins after a batch.
func scanWAL(fs vfs.FS, dir, name string, before uint64) (*walScan, error) {
	return readWAL(fs, dir, name, before, func(*walScan) bool { return false })
}

// beginWAL reads a log as far as it takes to know the first batch in it.
func beginWAL(fs vfs.FS, dir, name string) (*walScan, error) {
	return readWAL(fs, dir, name, 0, func(s *walScan) bool { return s.stopped || s.first != 0 || s.unmarked })
}

func readWAL(fs vfs.FS, dir, name string, before uint64, enough func(*walScan) bool) (_ *walScan, err error) {
	f, err := fs.Open(fs.PathJoin(dir, name), vfs.SequentialReadsOption)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	number, _ := walFileNumber(name)
	s := &walScan{name: name, number: uint32(number), before: before, header: walHeader} // Pebble shortens it too
	block := make([]byte, walBlock)
	for {
		n, err := io.ReadFull(f, block)
		if n > 0 {
			s.block(block[:n])
		}
		s.size += int64(n)
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), err == nil && enough(s):
			return s, nil
		case err != nil:
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
	}
}

// walFileNumber is the number of a log, by the name of its file.
func walFileNumber(name string) (number uint64, ok bool) {
	digits, ok := strings.CutSuffix(name, walSuffix)
	number, err := strconv.ParseUint(digits, 10, 64)
	return number, ok && err == nil
}

const walSuffix = ".log"

// block reads the next block, of which there is less at the end of the file.
func (s *walScan) block(b []byte) {
	at := 0
	if !s.stopped {
		if at = s.walk(b); !s.stopped {
			return
		}
		s.examine(b[at:], at == 0, len(b) == walBlock)
		at++
	}
	s.search(b, at)
}

// walk reads the chunks of a block as Pebble does, up to the first that is none.
func (s *walScan) walk(b []byte) (at int) {
	for at < len(b) {
		rest := b[at:]
		c, ok := parseWALChunk(rest)
		if !ok || c.number != s.number || c.begins() == s.inRecord {
			// Pebble looks at a rest that has room for the oldest kind of header.
			if len(b) == walBlock && len(rest) < s.header && (len(rest) < walNumber || allZero(rest)) {
				return at
			}
			s.stopped = true
			return at
		}
		at += c.size()
		s.header = c.header
		if c.begins() {
			s.record = s.record[:0]
		}
		s.record = append(s.record, c.payload[:min(len(c.payload), progressEnd-len(s.record))]...)
		if s.inRecord = !c.ends(); !s.inRecord {
			s.end = s.size + int64(at)
			s.read()
		}
	}
	return at
}

// read takes note of a batch that can be read.
func (s *walScan) read() {
	p, ok := parseProgress(s.record)
	switch {
	case !ok:
		s.unmarked = true
	case p.number == 0:
	case s.first == 0:
		s.first, s.last = p.number, p.number
	default:
		s.gap = s.gap || p.number != s.last+1
		s.last = p.number
	}
}

// examine looks at the first bytes that are no valid chunk of the log.
func (s *walScan) examine(b []byte, blockStart, whole bool) {
	if allZero(b) || closesWAL(b, s.number) && !s.inRecord {
		return // nothing was written there, or the log was closed
	}
	if len(b) < s.header {
		// The rest of a block is zero, or the file was cut off.
		s.damaged = whole && onlyBit(b)
		return
	}
	if c, ok := parseWALChunk(b); ok && c.number < s.number {
		return // of the log that had the file before
	}
	s.damaged = walBitFlipped(b, s.number, s.header)
	if walChunkNumber(b) == s.number {
		cut := !whole && s.header+walChunkLength(b) > len(b)
		s.doubtful = !cut
		return
	}
	// What an older log has left may begin with the rest of a chunk, but not where a
	// block does.
	s.doubtful = blockStart
}

// onlyBit reports whether exactly one bit is set.
func onlyBit(b []byte) bool {
	n := 0
	for _, c := range b {
		n += bits.OnesCount8(c)
	}
	return n == 1
}

// search looks for valid chunks of the log in a block that is behind its end, or in the
// rest of one. Where a block begins a chunk does, and the next one follows it. Once that
// is lost a chunk may begin anywhere; but what looks like one may be the content of a
// record then, so it must also begin a batch that can be there.
func (s *walScan) search(b []byte, at int) {
	for inOrder := at == 0; at+walOldHeader <= len(b); {
		number := walChunkNumber(b[at:])
		if number == 0 || number > s.number {
			at, inOrder = at+1, false
			continue
		}
		c, ok := parseWALChunk(b[at:])
		if !ok {
			at, inOrder = at+1, false
			continue
		}
		if number == s.number && (inOrder || s.fits(&c, s.size+int64(at))) {
			s.found(&c)
		}
		at += c.size()
	}
}

// fits reports whether a chunk that is somewhere behind the end begins a batch that may
// be there, by its number: the others in between took their place.
func (s *walScan) fits(c *walChunk, at int64) bool {
	p, ok := parseProgress(c.payload)
	last := max(s.last, s.before)
	return ok && c.begins() && p.durable < p.number && p.number > last && p.number-last <= uint64(at-s.end)/progressEnd+1
}

func (s *walScan) found(c *walChunk) {
	s.behind = true
	if !c.begins() {
		return
	}
	if p, ok := parseProgress(c.payload); ok {
		if s.next == 0 {
			s.next = p.number
		}
		s.durable = max(s.durable, p.durable)
	}
}
