// Package streams records streams of events while they pass to their first caller, so that
// duplicates join them from the start, on every node, and get the whole of them afterwards.
//
// A door that answers a call with a stream, under an attempt, does this:
//
//  1. It makes an effect durable in the ledger of the attempt, as a sign that an answer is on its
//     way, and calls [Record] with a head: whatever it needs to know of the stream.
//  2. It writes what comes to the [Writer], which waits for the store and never for a caller, and
//     passes the first caller what [Reader.Next] of the returned reader has. If Write fails,
//     recording is over; the door goes on by itself once that reader has come to its end.
//  3. When the stream has ended as it should, it calls [Writer.Close] and puts the mark into the
//     result of the attempt. Only then is the stream an outcome. What may leave only when the
//     outcome is durable, such as a final event, belongs into the result, not into the stream.
//
// A duplicate with the decision in_flight, held or replay reads it by [Join].
//
// Cells of the store have the stream, each a part of it. The writer rewrites the last cell with
// the text since, until it is full. Nobody needs a cell once the record is gone: it
// expires by itself, a while after the record, and package segments deletes it earlier.
package streams

import (
	"encoding/binary"
	"errors"
	"io"
	"time"
)

var (
	// ErrOver says that no more is recorded: the stream is too large, takes too long, is more
	// than its sender's quota allows, or the store didn't keep it.
	ErrOver = errors.New("streams: the stream is no longer recorded")
	// ErrPartial says that there is no more, and that nobody knows how the stream went on: its
	// holder is gone, or its source broke off.
	ErrPartial = errors.New("streams: the stream broke off")
	// ErrNone says that there is no recorded stream, or not the whole of it any more.
	ErrNone = errors.New("streams: there is no recorded stream")
)

// Ended reports whether an error says that nothing more comes of a stream, or that it is at its end.
func Ended(err error) bool {
	return err == nil || errors.Is(err, io.EOF) || errors.Is(err, ErrOver) || errors.Is(err, ErrPartial) || errors.Is(err, ErrNone)
}

// longest is how long a stream is recorded. Its first cells must outlive its record, and nobody
// knows the end of that when they are written.
const longest = 24 * time.Hour

// A cell has a byte with the number of its form, a byte that says whether it is full, so that
// the stream goes on in the next one, and its part of the stream. The first part begins with
// the framed head.
const form = 1

// part takes a cell apart. It is not ok if a later program has written it.
func part(data []byte) (text []byte, full, ok bool) {
	if len(data) < 2 || data[0] != form {
		return nil, false, false
	}
	return data[2:], data[1] == 1, true
}

// mark says how long a whole stream is, with its head, and what its digest is.
type mark struct {
	size int64
	sum  string
}

func (m mark) encode() []byte {
	return append(binary.AppendUvarint([]byte{form}, uint64(m.size)), m.sum...)
}

// readMark reads what encode wrote.
func readMark(data []byte) (m mark, ok bool) {
	if len(data) == 0 || data[0] != form {
		return m, false
	}
	size, n := binary.Uvarint(data[1:])
	if n <= 0 {
		return m, false
	}
	return mark{int64(size), string(data[1+n:])}, true
}
