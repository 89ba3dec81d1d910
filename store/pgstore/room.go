package pgstore

import (
	"slices"

	"github.com/jackc/pgx/v5/pgconn"
)

// room is a message of no bytes that gives a connection's encoder a buffer which has
// room for the next one. The encoder drops its own after each large message, and would
// grow the next from a kilobyte by doubling, which leaves behind several times what is
// sent. Nothing else uses the buffer.
type room struct {
	need int
	buf  []byte
}

// maxRoom bounds what a connection, and an arena, keep.
const maxRoom = 1 << 20

// roomOf is where a connection keeps its room.
const roomOf = "semel.room"

// makeRoom prepares a connection for a message with parameters.
func makeRoom(conn *pgconn.PgConn, values [][]byte) {
	need := 256 + 4*len(values)
	for _, v := range values {
		need += len(v)
	}
	r, ok := conn.CustomData()[roomOf].(*room)
	if !ok {
		r = new(room)
		conn.CustomData()[roomOf] = r
	}
	r.need = need
	conn.Frontend().Send(r)
}

// Encode is called with what the encoder holds back, which is nothing.
func (r *room) Encode(held []byte) ([]byte, error) {
	if len(held) > 0 || cap(held) >= r.need {
		return held, nil
	}
	buf := slices.Grow(r.buf[:0], r.need)
	if r.buf = buf; cap(buf) > maxRoom {
		r.buf = nil
	}
	return buf, nil
}

// Decode and Frontend make it a message of pgx.
func (*room) Decode([]byte) error { return nil }
func (*room) Frontend()           {}
