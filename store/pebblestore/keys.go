package pebblestore

import (
	"encoding/binary"
	"math"
	"time"
)

// digest is [semel.ID.Digest].
type digest = [32]byte

// address numbers records in the order in which they were created. An address is
// not used again.
type address uint64

// nowhere is the address of what is not stored.
const nowhere address = math.MaxUint64

// dueTime is a time in the due index: nanoseconds since 1970, shifted so that it
// sorts as a number without sign. Times outside the range, which ends in the
// year 2262, are moved to its ends.
type dueTime uint64

// never is the time of records that are not in the due index.
const never dueTime = math.MaxUint64

var minDueTime, maxDueTime = time.Unix(0, math.MinInt64), time.Unix(0, math.MaxInt64-1)

func makeDueTime(t time.Time) dueTime {
	switch {
	case t.IsZero():
		return never
	case t.Before(minDueTime):
		t = minDueTime
	case t.After(maxDueTime):
		t = maxDueTime
	}
	return dueTime(uint64(t.UnixNano()) ^ 1<<63)
}

// The first byte of a key says what it is.
const (
	indexPrefix  = 'i'
	recordPrefix = 'r'
	duePrefix    = 'd'

	addressLen   = 8
	indexKeyLen  = 1 + len(digest{})
	recordKeyLen = 1 + addressLen
	dueKeyLen    = 1 + 8 + addressLen
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

// meta is what the store knows about itself, written with every batch.
type meta struct {
	clock   time.Time // not before any that the store has given out
	batches uint64    // ever written
	records uint64    // that are stored
	end     address   // of the next record
}

const metaLen = 4 * 8

func (m *meta) put(dst []byte) {
	binary.BigEndian.PutUint64(dst, uint64(m.clock.UnixNano()))
	binary.BigEndian.PutUint64(dst[8:], m.batches)
	binary.BigEndian.PutUint64(dst[16:], m.records)
	putAddress(dst[24:], m.end)
}

func parseMeta(b []byte) (m meta, ok bool) {
	if len(b) != metaLen {
		return m, false
	}
	return meta{
		clock:   time.Unix(0, int64(binary.BigEndian.Uint64(b))).UTC(),
		batches: binary.BigEndian.Uint64(b[8:]),
		records: binary.BigEndian.Uint64(b[16:]),
		end:     address(binary.BigEndian.Uint64(b[24:])),
	}, true
}
