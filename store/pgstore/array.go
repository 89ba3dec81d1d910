package pgstore

import (
	"encoding/binary"
	"sync"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/semelhq/semel"
)

// column is one parameter of a statement, in PostgreSQL's binary form, which spares both
// sides from writing and reading bytes as text: an array of a statement that works on
// many rows, or the bare value of one that works on a single row.
type column struct {
	oid  uint32
	bare bool
	buf  []byte // of a bare value, what it is itself where that is bytes
}

// arrayHeader is the length of what comes before the elements: dimensions, whether
// there are nulls, the type of elements, their number, the first index.
const arrayHeader = 20

// arena is memory that is taken in pieces, so that the columns of a statement are made
// at once. One that is used up has new memory for each.
type arena struct {
	rows int
	bare bool // its columns are bare values, so there is one row
	all  []byte
	free []byte // of it
}

// arenas are those that nobody uses.
var arenas = sync.Pool{New: func() any { return new(arena) }}

// newArena is an arena of a size. Its memory is not zeroed.
func newArena(rows int, bare bool, size int) *arena {
	a := arenas.Get().(*arena)
	if cap(a.all) < size {
		a.all = make([]byte, size)
	}
	a.rows, a.bare, a.free = rows, bare, a.all[:size]
	return a
}

// discard has the memory used again. The statement that it was for has been run, or is
// never run.
func (a *arena) discard() {
	if cap(a.all) <= maxRoom {
		arenas.Put(a)
	}
}

func (a *arena) take(n int) []byte {
	if len(a.free) < n {
		return make([]byte, n)
	}
	piece := a.free[:n:n]
	a.free = a.free[n:]
	return piece
}

// column makes a column of elements of about a size, in bytes.
func (a *arena) column(array, element uint32, size int) column {
	if a.bare {
		return column{oid: element, bare: true, buf: a.take(size)[:0]}
	}
	c := column{oid: array, buf: a.take(arrayHeader + a.rows*(4+size))[:arrayHeader]}
	binary.BigEndian.PutUint32(c.buf[0:], 1)
	binary.BigEndian.PutUint32(c.buf[4:], 1)
	binary.BigEndian.PutUint32(c.buf[8:], element)
	binary.BigEndian.PutUint32(c.buf[12:], uint32(a.rows))
	binary.BigEndian.PutUint32(c.buf[16:], 1)
	return c
}

func (a *arena) bytea(size int) column {
	if a.bare {
		return column{oid: pgtype.ByteaOID, bare: true}
	}
	return a.column(pgtype.ByteaArrayOID, pgtype.ByteaOID, size)
}

func (a *arena) text(size int) column {
	return a.column(pgtype.TextArrayOID, pgtype.TextOID, size)
}

func (a *arena) int8() column { return a.column(pgtype.Int8ArrayOID, pgtype.Int8OID, 8) }

func (a *arena) time() column {
	return a.column(pgtype.TimestamptzArrayOID, pgtype.TimestamptzOID, 8)
}

func (a *arena) bool() column { return a.column(pgtype.BoolArrayOID, pgtype.BoolOID, 1) }

func byteaColumn(rows, size int) column { return (&arena{rows: rows}).bytea(size) }
func textColumn(rows, size int) column  { return (&arena{rows: rows}).text(size) }

// null adds an element that is not there.
func (c *column) null() {
	if c.bare {
		c.buf = nil
		return
	}
	c.buf = append(c.buf, 0xff, 0xff, 0xff, 0xff)
}

// element begins an element of a length.
func (c *column) element(n int) {
	if !c.bare {
		c.buf = binary.BigEndian.AppendUint32(c.buf, uint32(n))
	}
}

// bytes adds bytes, which the column may keep until its statement was run.
func (c *column) bytes(b []byte) {
	if c.bare {
		c.buf = b
		return
	}
	c.element(len(b))
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
	c.element(len(s))
	c.buf = append(c.buf, s...)
}

func (c *column) int8(n int64) {
	c.element(8)
	c.buf = binary.BigEndian.AppendUint64(c.buf, uint64(n))
}

func (c *column) bool(b bool) {
	c.element(1)
	if b {
		c.buf = append(c.buf, 1)
	} else {
		c.buf = append(c.buf, 0)
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
	often  bool   // worth preparing
	ops    []*op  // that it writes
	arena  *arena // where their parameters are

	each func(row [][]byte) error // takes the rows, and may not keep them; nil: nobody
	end  func() error             // is called when it has taken all

	few struct { // where most statements have their parameters
		values [17][]byte
		oids   [17]uint32
	}
}

func newStatement(sql text, columns ...column) *statement {
	st := &statement{sql: sql}
	st.values, st.oids = st.few.values[:0], st.few.oids[:0]
	return st.with(columns)
}

// with adds parameters.
func (st *statement) with(columns []column) *statement {
	for i := range columns {
		st.values = append(st.values, columns[i].buf)
		st.oids = append(st.oids, columns[i].oid)
	}
	return st
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

// of makes it the statement that writes ops, whose parameters are in an arena.
func (st *statement) of(ops []*op, a *arena) *statement {
	st.ops, st.arena = ops, a
	return st.prepare()
}

// binaryFormat says that all parameters, or results, are in binary form.
var binaryFormat = []int16{1}
