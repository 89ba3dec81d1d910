package pebblestore

import (
	"encoding/binary"
	"math"

	"github.com/semelhq/semel/internal/terms"
	"github.com/semelhq/semel/store"
)

// digest is [store.ID.Digest].
type digest = [32]byte

// address numbers records in the order in which they were created. No address is reused.
type address uint64

// noAddress is the address of a record that isn't stored.
const noAddress address = math.MaxUint64

// dueTime is an instant in the due index, shifted so that it sorts as an unsigned number.
type dueTime uint64

// never is the time of records that are not in the due index.
const never dueTime = math.MaxUint64

func makeDueTime(at store.Instant) dueTime {
	if at.IsZero() {
		return never
	}
	return sortable(at)
}

// sortable returns a number that sorts like the instant, and before never.
func sortable(at store.Instant) dueTime {
	return dueTime(uint64(min(at, math.MaxInt64-1)) ^ 1<<63)
}

// The first byte of a key is its kind.
const (
	indexPrefix     = 'i'
	recordPrefix    = 'r'
	duePrefix       = 'd'
	attributePrefix = 'a'

	// The evidence log comes after everything else, with tables of its own for each kind: see
	// kinds.
	tilePrefix    = 't'
	leafPrefix    = 'u'
	subjectPrefix = 'v'
	openingPrefix = 'w'

	addressLen  = 8
	indexKeyLen = 1 + len(digest{})
	dueKeyLen   = 1 + 8 + addressLen

	attributeKeyLen = 1 + terms.Len + addressLen
	subjectKeyLen   = 1 + len(store.Subject{}) + 8
)

var (
	metaKey  = []byte("mstore")
	clockKey = []byte("mtime") // the clock's note, if it has one

	attributesKey = []byte("mattributes") // see attributes
)

func encodeAddress(at address) []byte {
	return binary.BigEndian.AppendUint64(make([]byte, 0, addressLen), uint64(at))
}

// numbered makes a key from a prefix and numbers.
func numbered(prefix byte, numbers ...uint64) []byte {
	key := append(make([]byte, 0, dueKeyLen), prefix)
	for _, n := range numbers {
		key = binary.BigEndian.AppendUint64(key, n)
	}
	return key
}

func indexKey(d *digest) []byte {
	return append(append(make([]byte, 0, indexKeyLen), indexPrefix), d[:]...)
}

func recordKey(at address) []byte { return numbered(recordPrefix, uint64(at)) }

func dueKey(t dueTime, at address) []byte { return numbered(duePrefix, uint64(t), uint64(at)) }

func attributeKey(t terms.Term, at address) []byte {
	key := append(append(make([]byte, 0, attributeKeyLen), attributePrefix), t[:]...)
	return binary.BigEndian.AppendUint64(key, uint64(at))
}

// entryKey returns the key of a leaf or an opening by its number.
func entryKey(prefix byte, number uint64) []byte { return numbered(prefix, number) }

func subjectKey(subject *store.Subject, number uint64) []byte {
	key := append(make([]byte, 0, subjectKeyLen), subjectPrefix)
	return binary.BigEndian.AppendUint64(append(key, subject[:]...), number)
}

func tileKey(name string) []byte { return append([]byte{tilePrefix}, name...) }

// parseAddress is the reverse of encodeAddress.
func parseAddress(b []byte) (at address, ok bool) {
	if len(b) != addressLen {
		return 0, false
	}
	return address(binary.BigEndian.Uint64(b)), true
}

// parseDueKey is the reverse of dueKey.
func parseDueKey(b []byte) (t dueTime, at address, ok bool) {
	if len(b) != dueKeyLen || b[0] != duePrefix {
		return 0, 0, false
	}
	return dueTime(binary.BigEndian.Uint64(b[1:])), address(binary.BigEndian.Uint64(b[9:])), true
}

// meta is what the store knows about itself, written with every batch.
type meta struct {
	clock   store.Instant // not before any time that the store has returned
	batches uint64        // written so far
	records uint64        // stored now
	end     address       // the address of the next record
	entries uint64        // in the evidence log
}

const metaLen = 5 * 8

func (m *meta) encode() []byte {
	b := make([]byte, 0, metaLen)
	for _, n := range []uint64{uint64(m.clock), m.batches, m.records, uint64(m.end), m.entries} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	return b
}

func parseMeta(b []byte) (m meta, ok bool) {
	if len(b) != metaLen {
		return m, false
	}
	n := func(i int) uint64 { return binary.BigEndian.Uint64(b[8*i:]) }
	return meta{clock: store.Instant(n(0)), batches: n(1), records: n(2), end: address(n(3)), entries: n(4)}, true
}
