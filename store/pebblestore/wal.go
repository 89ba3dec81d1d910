package pebblestore

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"math/bits"

	"github.com/cockroachdb/pebble/v2"
)

// This file knows the format of Pebble's write-ahead log, as the package comment of
// pebble/v2/record describes it for logs since pebble.FormatWALSyncChunks: the reader of that
// package stops where this one continues. ADR 24 says why, and TestPebbleReadsTheSame fails
// when the format changes.
//
// A log consists of blocks of 32 KiB, which hold chunks. A chunk lies in one block, and a
// record, which is one batch, is in one or more of them:
//
//	checksum (4) | length (2) | kind (1) | number of the log (4) | synced up to (8) | payload
//
// The rest of a block that is too short for a header is zero. A log that was closed ends with a
// shorter header, which has only its kind and the number of the next log. Pebble reuses the
// files of old logs: after the newest chunk there may be some of an older log.

const (
	walBlock  = 32 << 10
	walHeader = 19
	walClosed = 11 // the header that closes a log

	walLength = 4 // offset of the length in a header
	walKind   = 6
	walNumber = 7

	walFull, walFirst, walLast = 9, 10, 12 // kinds: a record, its first part and its last; between these, any other part
	walClosedKind              = 5
)

// walChunk is one chunk.
type walChunk struct {
	number  uint32 // of its log
	kind    byte
	payload []byte
}

func (c *walChunk) size() int { return walHeader + len(c.payload) }

// begins reports whether a record begins with the chunk, and ends whether one ends.
func (c *walChunk) begins() bool { return c.kind == walFull || c.kind == walFirst }
func (c *walChunk) ends() bool   { return c.kind == walFull || c.kind == walLast }

// parseWALChunk reads the chunk at the beginning of b, the rest of a block, if it is a valid
// one.
func parseWALChunk(b []byte) (c walChunk, ok bool) {
	if len(b) < walHeader || b[walKind] < walFull || b[walKind] > walLast {
		return c, false
	}
	end := walHeader + walChunkLength(b)
	if end > len(b) || walChecksum(b[walKind:end]) != binary.LittleEndian.Uint32(b) {
		return c, false
	}
	return walChunk{walChunkNumber(b), b[walKind], b[walHeader:end]}, true
}

func walChunkLength(b []byte) int    { return int(binary.LittleEndian.Uint16(b[walLength:])) }
func walChunkNumber(b []byte) uint32 { return binary.LittleEndian.Uint32(b[walNumber:]) }

// closesWAL reports whether a log was closed where b begins.
func closesWAL(b []byte, number uint32) bool {
	return len(b) >= walClosed && allZero(b[:walKind]) && b[walKind] == walClosedKind && walChunkNumber(b) == number+1
}

var walTable = crc32.MakeTable(crc32.Castagnoli)

// walChecksum returns the checksum of everything after the length in a chunk.
func walChecksum(b []byte) uint32 { return maskCRC(crc32.Checksum(b, walTable)) }

func maskCRC(crc uint32) uint32 { return bits.RotateLeft32(crc, 17) + 0xa282ead8 }

func allZero(b []byte) bool { return len(bytes.Trim(b, "\x00")) == 0 }

// onlyBit reports whether exactly one bit is set.
func onlyBit(b []byte) bool {
	b = bytes.Trim(b, "\x00")
	return len(b) == 1 && bits.OnesCount8(b[0]) == 1
}

// walBitFlipped reports whether b, which isn't a valid chunk of a log, would be one if one bit,
// its length or its number were different. Half-written chunks hardly ever look like that:
// about one in ten thousand does.
func walBitFlipped(b []byte, number uint32) bool {
	if walChunkNumber(b) != number {
		b = bytes.Clone(b)
		binary.LittleEndian.PutUint32(b[walNumber:], number)
		_, ok := parseWALChunk(b)
		return ok
	}
	sum := binary.LittleEndian.Uint32(b)
	if end := walHeader + walChunkLength(b); end <= len(b) && oneBitApart(b[walKind:end], sum) {
		return true
	}
	crc := crc32.Checksum(b[walKind:walHeader], walTable)
	for n := walHeader; maskCRC(crc) != sum; n++ { // n: try another length
		if n == len(b) {
			return false
		}
		crc = crc32.Update(crc, walTable, b[n:n+1])
	}
	return true
}

// oneBitApart reports whether a checksum would be right if one bit of it, or of its data, were
// flipped.
func oneBitApart(b []byte, sum uint32) bool {
	crc := crc32.Checksum(b, walTable)
	if bits.OnesCount32(maskCRC(crc)^sum) == 1 {
		return true
	}
	// A bit changes the CRC in a way that depends only on its place: from the last bit to the first.
	change := uint32(crc32.Castagnoli)
	for range 8 * len(b) {
		if maskCRC(crc^change) == sum {
			return true
		}
		change = change>>1 ^ change&1*crc32.Castagnoli
	}
	return false
}

// progress is stored in every batch of the log: its number, and the newest batch known to be
// durable when it was written.
type progress struct{ number, durable uint64 }

const progressLen = 2 * 8

// log puts p at the beginning of a batch.
func (p progress) log(b *pebble.Batch) {
	data := binary.BigEndian.AppendUint64(make([]byte, 0, progressLen), p.number)
	must(b.LogData(binary.BigEndian.AppendUint64(data, p.durable), nil))
}

// progressEnd is where the progress ends in a record of the log: after the header of the batch,
// the kind and the length.
const progressEnd = 12 + 2 + progressLen

// parseProgress reads the progress at the beginning of a record.
func parseProgress(record []byte) (p progress, ok bool) {
	if len(record) < progressEnd || record[12] != byte(pebble.InternalKeyKindLogData) || record[13] != progressLen {
		return p, false
	}
	return progress{binary.BigEndian.Uint64(record[14:]), binary.BigEndian.Uint64(record[22:])}, true
}
