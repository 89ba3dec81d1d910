package pgstore

import (
	"encoding/binary"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/semelhq/semel/store"
)

// Parameters and results travel in PostgreSQL's binary form, which the store writes and reads
// itself: the driver's way, by plans for each type and interfaces for each element, took a
// third of the time of a batch. Text and bytes need no conversion; the other types are below.

// column is an array parameter, with an element for each row of a statement. value appends the
// element of a row to b, or returns nil for null.
type column[T any] struct {
	name, kind string
	value      func(b []byte, row T) []byte
}

// kinds are the types of elements.
var kinds = map[string]uint32{
	"bool": pgtype.BoolOID, "bytea": pgtype.ByteaOID, "int8": pgtype.Int8OID, "text": pgtype.TextOID, "timestamptz": pgtype.TimestamptzOID,
	"tsvector": 3614, // the driver has no name for it
}

// arrays returns the parameters of columns, with room for more of them. They are in memory, as
// long as that suffices.
func arrays[T any](memory []byte, columns []column[T], rows []T) [][]byte {
	b, args := memory, make([][]byte, len(columns), len(columns)+6)
	for i, c := range columns {
		from := len(b)
		dimensions := uint32(min(len(rows), 1))
		for _, field := range []uint32{dimensions, 0, kinds[c.kind]} { // nobody reads whether there are nulls
			b = binary.BigEndian.AppendUint32(b, field)
		}
		if len(rows) > 0 {
			b = binary.BigEndian.AppendUint32(b, uint32(len(rows)))
			b = binary.BigEndian.AppendUint32(b, 1) // the first index
		}
		for _, row := range rows {
			b = append(b, 0xff, 0xff, 0xff, 0xff) // the length of null
			if v := c.value(b, row); v != nil {
				binary.BigEndian.PutUint32(v[len(b)-4:], uint32(len(v)-len(b)))
				b = v
			}
		}
		args[i] = b[from:]
	}
	return args
}

// scalarsOf returns the parameters of one row, which aren't arrays.
func scalarsOf[T any](memory []byte, columns []column[T], row T) [][]byte {
	b, args := memory, make([][]byte, len(columns), len(columns)+1)
	for i, c := range columns {
		if v := c.value(b, row); v != nil {
			b, args[i] = v, v[len(b):]
		}
	}
	return args
}

// array returns an array parameter of texts or bytes.
func array[T ~string | ~[]byte](kind string, list []T) []byte {
	return arrays(nil, []column[T]{{kind: kind, value: func(b []byte, v T) []byte { return append(b, v...) }}}, list)[0]
}

// orNull appends bytes; nil is null.
func orNull(b, v []byte) []byte {
	if v == nil {
		return nil
	}
	return append(b, v...)
}

func appendInt(b []byte, n int64) []byte { return binary.BigEndian.AppendUint64(b, uint64(n)) }

// appendTime appends an instant, to the microsecond; zero is null.
func appendTime(b []byte, at store.Instant) []byte {
	if at == 0 {
		return nil
	}
	return appendInt(b, microseconds(at))
}

// microseconds returns an instant in PostgreSQL's count: since 2000.
func microseconds(at store.Instant) int64 {
	const epoch = 946_684_800_000_000
	us := int64(at) / 1000
	if int64(at)%1000 < 0 {
		us--
	}
	return us - epoch
}

func bigint(n int64) []byte { return appendInt(nil, n) }

// values is a row of a result. The next row overwrites it.
type values [][]byte

// number returns a bigint value. It reports false for null, and for anything else.
func (v values) number(i int) (int64, bool) {
	if len(v[i]) != 8 {
		return 0, false
	}
	return int64(binary.BigEndian.Uint64(v[i])), true
}

func (v values) bool(i int) bool { return len(v[i]) == 1 && v[i][0] == 1 }

// text is the scan function for rows of a single text.
func text(v values) (string, error) { return string(v[0]), nil }
