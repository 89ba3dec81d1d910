package pgstore

import (
	"encoding/binary"
	"slices"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/semelhq/semel"
)

// column is one parameter of a statement that works on many rows: an array in
// PostgreSQL's binary form, which spares both sides from writing and reading bytes
// as text.
type column struct {
	oid uint32 // of the array
	buf []byte
}

// arrayHeader is the length of what comes before the elements: dimensions, whether
// there are nulls, the type of elements, their number, the first index.
const arrayHeader = 20

// arena is memory that is taken in pieces, so that the columns of a statement are made
// at once. Nil, and one that is used up, have new memory for each.
type arena struct{ free []byte }

func newArena(size int) *arena { return &arena{make([]byte, size)} }

func (a *arena) take(n int) []byte {
	if a == nil || len(a.free) < n {
		return make([]byte, n)
	}
	piece := a.free[:n:n]
	a.free = a.free[n:]
	return piece
}

// column makes a column for rows of about a size, in bytes.
func (a *arena) column(array, element uint32, rows, size int) column {
	c := column{oid: array, buf: a.take(arrayHeader + rows*(4+size))[:arrayHeader]}
	binary.BigEndian.PutUint32(c.buf[0:], 1)
	binary.BigEndian.PutUint32(c.buf[4:], 1)
	binary.BigEndian.PutUint32(c.buf[8:], element)
	binary.BigEndian.PutUint32(c.buf[12:], uint32(rows))
	binary.BigEndian.PutUint32(c.buf[16:], 1)
	return c
}

func (a *arena) bytea(rows, size int) column {
	return a.column(pgtype.ByteaArrayOID, pgtype.ByteaOID, rows, size)
}

func (a *arena) text(rows, size int) column {
	return a.column(pgtype.TextArrayOID, pgtype.TextOID, rows, size)
}

func (a *arena) int8(rows int) column {
	return a.column(pgtype.Int8ArrayOID, pgtype.Int8OID, rows, 8)
}

func (a *arena) time(rows int) column {
	return a.column(pgtype.TimestamptzArrayOID, pgtype.TimestamptzOID, rows, 8)
}

func (a *arena) bool(rows int) column {
	return a.column(pgtype.BoolArrayOID, pgtype.BoolOID, rows, 1)
}

func byteaColumn(rows, size int) column { return (*arena)(nil).bytea(rows, size) }
func textColumn(rows, size int) column  { return (*arena)(nil).text(rows, size) }

// null adds an element that is not there.
func (c *column) null() { c.buf = append(c.buf, 0xff, 0xff, 0xff, 0xff) }

func (c *column) bytes(b []byte) {
	c.buf = binary.BigEndian.AppendUint32(c.buf, uint32(len(b)))
	c.buf = append(c.buf, b...)
}

// bytesOrNull takes nil for null.
func (c *column) bytesOrNull(b []byte) {
	if b == nil {
		c.null()
		return
	}
	c.bytes(b)
}

func (c *column) text(s string) {
	c.buf = binary.BigEndian.AppendUint32(c.buf, uint32(len(s)))
	c.buf = append(c.buf, s...)
}

func (c *column) int8(n int64) {
	c.buf = append(c.buf, 0, 0, 0, 8)
	c.buf = binary.BigEndian.AppendUint64(c.buf, uint64(n))
}

func (c *column) bool(b bool) {
	c.buf = append(c.buf, 0, 0, 0, 1, 0)
	if b {
		c.buf[len(c.buf)-1] = 1
	}
}

// time adds an instant to the microsecond, and null for none.
func (c *column) time(i semel.Instant) {
	if i == 0 {
		c.null()
		return
	}
	c.int8(microseconds(i))
}

// epoch2000 is where PostgreSQL counts from, in microseconds since 1970.
const epoch2000 = 946_684_800_000_000

// microseconds is an instant as PostgreSQL counts.
func microseconds(i semel.Instant) int64 {
	us := int64(i) / 1000
	if int64(i)%1000 < 0 {
		us--
	}
	return us - epoch2000
}

// statement is one statement with its parameters.
type statement struct {
	sql    text
	values [][]byte
	oids   []uint32
	often  bool  // worth preparing
	wrote  int64 // rows, by its tag
}

func newStatement(sql text, columns ...column) *statement {
	return (&statement{sql: sql}).with(columns)
}

// with adds parameters.
func (st *statement) with(columns []column) *statement {
	st.values, st.oids = slices.Grow(st.values, len(columns)), slices.Grow(st.oids, len(columns))
	for _, c := range columns {
		st.values = append(st.values, c.buf)
		st.oids = append(st.oids, c.oid)
	}
	return st
}

// newRowStatement is a statement on rows. That on a single row takes bare values,
// and is quicker to run.
func newRowStatement(many, one text, rows int, columns ...column) *statement {
	if rows == 1 {
		for i, c := range columns {
			columns[i] = c.only()
		}
		many = one
	}
	return newStatement(many, columns...).prepare()
}

// only is the one element of an array.
func (c column) only() column {
	oid := binary.BigEndian.Uint32(c.buf[8:])
	if value := c.buf[arrayHeader:]; binary.BigEndian.Uint32(value) != 0xffffffff {
		return column{oid, value[4:]}
	}
	return column{oid, nil}
}

// newRareStatement is a statement of which there is one text.
func newRareStatement(sql string, columns ...column) *statement {
	return newStatement(text{any: sql, direct: sql}, columns...)
}

// prepare has the statement prepared where that is possible.
func (st *statement) prepare() *statement {
	st.often = true
	return st
}

// binaryFormat says that all parameters, or results, are in binary form.
var binaryFormat = []int16{1}
