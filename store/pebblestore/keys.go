package pebblestore

import (
	"encoding/binary"
	"math"

	"github.com/semelhq/semel"
)

// digest is [semel.ID.Digest].
type digest = [32]byte

// address numbers records in the order in which they were created. An address is
// not used again.
type address uint64

// nowhere is the address of what is not stored.
const nowhere address = math.MaxUint64

// dueTime is an instant in the due index, shifted so that it sorts as a number
// without sign.
type dueTime uint64

// never is the time of records that are not in the due index.
const never dueTime = math.MaxUint64

func makeDueTime(at semel.Instant) dueTime {
	if at.IsZero() {
		return never
	}
	return dueTime(uint64(min(at, math.MaxInt64-1)) ^ 1<<63)
}

// The first byte of a key says what it is.
const (
	indexPrefix  = 'i'
	recordPrefix = 'r'
	duePrefix    = 'd'

	leafPrefix    = 'e'
	openingPrefix = 'o'
	subjectPrefix = 's'
	tilePrefix    = 't'

	addressLen    = 8
	indexKeyLen   = 1 + len(digest{})
	recordKeyLen  = 1 + addressLen
	dueKeyLen     = 1 + 8 + addressLen
	chunkKeyLen   = 1 + 8
	subjectKeyLen = 1 + len(semel.Subject{}) + 8
)

var (
	metaKey    = []byte("mstore")
	indexedKey = []byte("msubjects") // how many entries of the evidence log are found by their subjects
)

func putAddress(dst []byte, at address) {
	binary.BigEndian.PutUint64(dst, uint64(at))
}

func putIndexKey(dst []byte, d *digest) {
	dst[0] = indexPrefix
	copy(dst[1:], d[:])
}

func putRecordKey(dst []byte, at address) {
	dst[0] = recordPrefix
	putAddress(dst[1:], at)
}

func putDueKey(dst []byte, t dueTime, at address) {
	dst[0] = duePrefix
	binary.BigEndian.PutUint64(dst[1:], uint64(t))
	putAddress(dst[9:], at)
}

// putChunkKey makes the key of a chunk of the evidence log by its first number.
func putChunkKey(dst []byte, prefix byte, first uint64) {
	dst[0] = prefix
	binary.BigEndian.PutUint64(dst[1:], first)
}

// chunkKey is the same in memory of its own.
func chunkKey(prefix byte, first uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{prefix}, first)
}

func putSubjectKey(dst []byte, subject *semel.Subject, number uint64) {
	dst[0] = subjectPrefix
	copy(dst[1:], subject[:])
	binary.BigEndian.PutUint64(dst[1+len(subject):], number)
}

func tileKey(name string) []byte { return append([]byte{tilePrefix}, name...) }

// parseAddress is the reverse of putAddress.
func parseAddress(b []byte) (at address, ok bool) {
	if len(b) != addressLen {
		return 0, false
	}
	return address(binary.BigEndian.Uint64(b)), true
}

// parseDueKey is the reverse of putDueKey.
func parseDueKey(b []byte) (t dueTime, at address, ok bool) {
	if len(b) != dueKeyLen || b[0] != duePrefix {
		return 0, 0, false
	}
	return dueTime(binary.BigEndian.Uint64(b[1:])), address(binary.BigEndian.Uint64(b[9:])), true
}

// parseNumber reads the number at the end of a key of the evidence log.
func parseNumber(key []byte, length int) (number uint64, ok bool) {
	if len(key) != length {
		return 0, false
	}
	return binary.BigEndian.Uint64(key[length-8:]), true
}

// meta is what the store knows about itself, written with every batch.
type meta struct {
	clock   semel.Instant // not before any that the store has given out
	batches uint64        // ever written
	records uint64        // that are stored
	end     address       // of the next record
	entries uint64        // of the evidence log
}

const (
	metaLen = 5 * 8
	// metaLen1 is that of format 1, which had no evidence log.
	metaLen1 = 4 * 8
)

func (m *meta) put(dst []byte) {
	binary.BigEndian.PutUint64(dst, uint64(m.clock))
	binary.BigEndian.PutUint64(dst[8:], m.batches)
	binary.BigEndian.PutUint64(dst[16:], m.records)
	putAddress(dst[24:], m.end)
	binary.BigEndian.PutUint64(dst[32:], m.entries)
}

func parseMeta(b []byte) (m meta, ok bool) {
	if len(b) != metaLen && len(b) != metaLen1 {
		return m, false
	}
	m = meta{
		clock:   semel.Instant(binary.BigEndian.Uint64(b)),
		batches: binary.BigEndian.Uint64(b[8:]),
		records: binary.BigEndian.Uint64(b[16:]),
		end:     address(binary.BigEndian.Uint64(b[24:])),
	}
	if len(b) == metaLen {
		m.entries = binary.BigEndian.Uint64(b[32:])
	}
	return m, true
}
