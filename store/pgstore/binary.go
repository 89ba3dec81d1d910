package pgstore

import (
	"encoding/binary"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/semelhq/semel/store"
)

// Parameters and results travel in PostgreSQL's binary form, which the store writes and reads
// itself: the driver's way, by plans for each type and interfaces for each element, took a
// third of the time of a batch. Text and bytes are what they are; the rest is below.

// appendHeader begins an array of so many elements of a type.
func appendHeader(b []byte, kind string, n int) []byte {
	dimensions := uint32(min(n, 1))
	for _, field := range []uint32{dimensions, 0, kinds[kind]} { // whether there are nulls is not read
		b = binary.BigEndian.AppendUint32(b, field)
	}
	if n > 0 {
		b = binary.BigEndian.AppendUint32(b, uint32(n))
		b = binary.BigEndian.AppendUint32(b, 1) // the first index
	}
	return b
}

// kinds are the types of elements.
var kinds = map[string]uint32{
	"bool": pgtype.BoolOID, "bytea": pgtype.ByteaOID, "int8": pgtype.Int8OID, "text": pgtype.TextOID, "timestamptz": pgtype.TimestamptzOID,
}

// appendNull adds an element that is null.
func appendNull(b []byte) []byte { return append(b, 0xff, 0xff, 0xff, 0xff) }

// appendElement adds an element that is text or bytes.
func appendElement[T string | []byte](b []byte, v T) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(v))), v...)
}

// appendInt adds an element that is a number.
func appendInt(b []byte, n int64) []byte {
	return binary.BigEndian.AppendUint64(append(b, 0, 0, 0, 8), uint64(n))
}

// appendBool adds an element that is true or false.
func appendBool(b []byte, v bool) []byte { return append(append(b, 0, 0, 0, 1), boolean(v)...) }

// appendTime adds an element that is an instant, to the microsecond; zero is null.
func appendTime(b []byte, at store.Instant) []byte {
	if at == 0 {
		return appendNull(b)
	}
	return appendInt(b, microseconds(at))
}

// microseconds is an instant as PostgreSQL counts: since 2000.
func microseconds(at store.Instant) int64 {
	const epoch = 946_684_800_000_000
	us := int64(at) / 1000
	if int64(at)%1000 < 0 {
		us--
	}
	return us - epoch
}

// array is a parameter that is an array; a nil element of bytes is null.
func array[T string | []byte](kind string, list []T) []byte {
	b := appendHeader(nil, kind, len(list))
	for _, v := range list {
		if bytes, ok := any(v).([]byte); ok && bytes == nil {
			b = appendNull(b)
		} else {
			b = appendElement(b, v)
		}
	}
	return b
}

func bigint(n int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }

func boolean(v bool) []byte {
	if v {
		return []byte{1}
	}
	return []byte{0}
}

// values are a row of a result. They are overwritten by the next.
type values [][]byte

// number is a value that is a bigint. It reports false where that is null, or no bigint.
func (v values) number(i int) (int64, bool) {
	if len(v[i]) != 8 {
		return 0, false
	}
	return int64(binary.BigEndian.Uint64(v[i])), true
}

func (v values) bool(i int) bool { return len(v[i]) == 1 && v[i][0] == 1 }

// text is for rows of one value that is text.
func text(v values) (string, error) { return string(v[0]), nil }
