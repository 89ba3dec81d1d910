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
	return sortable(at)
}

// sortable is an instant as a number that sorts like it, below never.
func sortable(at semel.Instant) dueTime {
	return dueTime(uint64(min(at, math.MaxInt64-1)) ^ 1<<63)
}

// The first byte of a key says what it is.
const (
	indexPrefix  = 'i'
	recordPrefix = 'r'
	duePrefix    = 'd'

	// The evidence log comes after everything else, each kind in tables of its own:
	// see kinds.
	tilePrefix    = 't'
	leafPrefix    = 'u'
	runPrefix     = 'v'
	openingPrefix = 'w'

	addressLen   = 8
	indexKeyLen  = 1 + len(digest{})
	recordKeyLen = 1 + addressLen
	dueKeyLen    = 1 + 8 + addressLen
	chunkKeyLen  = 1 + 8
	runKeyLen    = 1 + 8 + 8
)

var metaKey = []byte("mstore")

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

// putRunKey makes the key of a block of a run: the number of the run's first entry,
// and the first place in the block.
func putRunKey(dst []byte, first uint64, p place) {
	dst[0] = runPrefix
	binary.BigEndian.PutUint64(dst[1:], first)
	binary.BigEndian.PutUint64(dst[9:], uint64(p))
}

// parseRunKey reads which run a block belongs to.
func parseRunKey(b []byte) (first uint64, ok bool) {
	if len(b) != runKeyLen || b[0] != runPrefix {
		return 0, false
	}
	return binary.BigEndian.Uint64(b[1:]), true
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

// parseChunkKey is the reverse of putChunkKey.
func parseChunkKey(key []byte) (first uint64, ok bool) {
	if len(key) != chunkKeyLen {
		return 0, false
	}
	return binary.BigEndian.Uint64(key[1:]), true
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
