package pebblestore

import (
	"encoding/binary"
	"hash/crc32"
	"math/bits"

	"github.com/cockroachdb/pebble/v2"
)

// This file knows the format of Pebble's write-ahead log, as the package comment of
// pebble/v2/record describes it. A log consists of blocks of 32 KiB, which hold chunks. A
// chunk lies in one block, and a record, which is one batch, is in one or more of them:
//
//	checksum (4) | length (2) | kind (1) | number of the log (4) | synced up to (8) | payload
//
// Before the format of the database was raised, logs had no "synced up to". The rest of a
// block that is too short for a header is zero. A log that was closed ends with a header
// that has nothing but the number of the next log in it. Pebble uses the files of old logs
// again: behind the newest chunk there may be some of an older log.

const (
	walBlock     = 32 << 10
	walHeader    = 19
	walOldHeader = 11

	walLength = 4 // where the length is in a header
	walKind   = 6
	walNumber = 7

	walFull, walFirst, walMiddle, walLast = 0, 1, 2, 3 // a chunk's place in its record
	walOldKinds, walKinds, walKindsEnd    = 5, 9, 13   // the kinds, each followed by those of the other places
)

// walChunk is one chunk.
type walChunk struct {
	number  uint32 // of its log
	place   int
	header  int
	payload []byte
}

func (c *walChunk) size() int { return c.header + len(c.payload) }

// begins reports whether a record begins with the chunk, and ends whether one ends.
func (c *walChunk) begins() bool { return c.place == walFull || c.place == walFirst }
func (c *walChunk) ends() bool   { return c.place == walFull || c.place == walLast }

// parseWALChunk reads the chunk at the beginning of what is left of a block, if there is
// a valid one.
func parseWALChunk(b []byte) (c walChunk, ok bool) {
	if len(b) < walOldHeader {
		return c, false
	}
	switch kind := int(b[walKind]); {
	case kind >= walKinds && kind < walKindsEnd:
		c.header, c.place = walHeader, kind-walKinds
	case kind >= walOldKinds && kind < walKinds:
		c.header, c.place = walOldHeader, kind-walOldKinds
	default:
		return c, false
	}
	end := c.header + walChunkLength(b)
	if end > len(b) || walChecksum(b[walKind:end]) != binary.LittleEndian.Uint32(b) {
		return c, false
	}
	c.number, c.payload = walChunkNumber(b), b[c.header:end]
	return c, true
}

func walChunkLength(b []byte) int    { return int(binary.LittleEndian.Uint16(b[walLength:])) }
func walChunkNumber(b []byte) uint32 { return binary.LittleEndian.Uint32(b[walNumber:]) }

// closesWAL reports whether a log was closed where b begins.
func closesWAL(b []byte, number uint32) bool {
	return len(b) >= walOldHeader && allZero(b[:walKind]) && b[walKind] == walOldKinds && walChunkNumber(b) == number+1
}

func allZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

var walTable = crc32.MakeTable(crc32.Castagnoli)

// walChecksum is that of what follows the length in a chunk.
func walChecksum(b []byte) uint32 { return maskCRC(crc32.Checksum(b, walTable)) }

const maskDelta = 0xa282ead8

func maskCRC(crc uint32) uint32   { return bits.RotateLeft32(crc, 17) + maskDelta }
func unmaskCRC(sum uint32) uint32 { return bits.RotateLeft32(sum-maskDelta, 15) }

// walBitFlipped reports whether b, which is no valid chunk of a log, is one of that log
// in which one bit was changed, or only its length, or only its number. What was never
// written whole hardly ever looks like that: once in some ten thousand times.
func walBitFlipped(b []byte, number uint32, header int) bool {
	if len(b) < header {
		return false
	}
	b = append([]byte(nil), b...)
	length, sum := walChunkLength(b), binary.LittleEndian.Uint32(b)
	if walChunkNumber(b) != number {
		binary.LittleEndian.PutUint32(b[walNumber:], number)
		_, ok := parseWALChunk(b)
		return ok
	}
	crc := crc32.Checksum(b[walKind:header], walTable)
	for n := 0; ; n++ {
		if n == length {
			if oneBitApart(crc, sum, n+header-walKind) {
				return true
			}
		} else if maskCRC(crc) == sum {
			return true
		}
		if header+n == len(b) {
			return false
		}
		crc = crc32.Update(crc, walTable, b[header+n:][:1])
	}
}

// oneBitApart reports whether one bit of the checksum, or of the n bytes of which a CRC
// was computed, keeps it from being the right one.
func oneBitApart(crc, sum uint32, n int) bool {
	if bits.OnesCount32(maskCRC(crc)^sum) == 1 {
		return true
	}
	diff := crc ^ unmaskCRC(sum)
	// What each bit of a byte changes in the CRC, from the last byte to the first.
	var change [8]uint32
	for i := range change {
		change[i] = walTable[1<<i]
	}
	for range n {
		for i, c := range change {
			if c == diff {
				return true
			}
			change[i] = walTable[byte(c)] ^ c>>8
		}
	}
	return false
}

// progress is what each batch says in the log, and nowhere else: its number, and that
// of the newest batch that was durable when it was written. Batches that others don't
// count on have the number 0.
type progress struct{ number, durable uint64 }

const progressLen = 2 * 8

// log begins a batch with p.
func (p progress) log(b *pebble.Batch) {
	data := binary.BigEndian.AppendUint64(make([]byte, 0, progressLen), p.number)
	must(b.LogData(binary.BigEndian.AppendUint64(data, p.durable), nil))
}

// progressEnd is where in a record of the log the progress ends: after the header of the
// batch, the kind and the length.
const progressEnd = 12 + 2 + progressLen

// parseProgress reads it from the beginning of a record.
func parseProgress(record []byte) (p progress, ok bool) {
	if len(record) < progressEnd || record[12] != byte(pebble.InternalKeyKindLogData) || record[13] != progressLen {
		return p, false
	}
	return progress{binary.BigEndian.Uint64(record[14:]), binary.BigEndian.Uint64(record[22:])}, true
}
