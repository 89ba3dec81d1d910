package redisstore

import (
	"strconv"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/recordcodec"
)

// write is one write on its way.
type write struct {
	shard                       *shard
	record                      string // key
	value, expect, at, deadline string // see scriptWrite

	// What became of it. With an error that is unknown, unless the error says that it
	// was not applied. Otherwise it was made, or this is what is there instead, which is
	// nothing where it is empty.
	client rueidis.Client // that has sent it
	err    error
	made   bool
	there  string

	done chan struct{} // receives once, when it was answered
	room []byte        // has the texts
}

func newWrite() *write { return &write{done: make(chan struct{}, 1)} }

// writes are free. Only those that were answered are used again: while the client may
// still send one, its texts must not change.
var writes = sync.Pool{New: func() any { return newWrite() }}

// maxRoom is how many bytes of texts a write that is free keeps room for.
const maxRoom = 64 << 10

// free gives back a write that was answered.
func (w *write) free() {
	*w = write{done: w.done, room: w.room}
	if cap(w.room) > maxRoom {
		w.room = nil
	}
	writes.Put(w)
}

// fill makes the write one of a record.
func (w *write) fill(s *Store, from *semel.Write, digest *[digestLen]byte) error {
	rec := &from.Record
	w.shard = s.keys.shard(digest)
	claim := from.Expect.IsZero()
	b := w.room[:0]
	if claim {
		b = appendPlace(b, rec.CreatedAt)
	}
	start := len(b)
	b, err := recordcodec.Append(appendDue(b, rec.NextAt), rec)
	if err != nil {
		return err
	}
	valueEnd := len(b)
	b = append(append(b, w.shard.records...), digest[:]...)
	keyEnd := len(b)
	if !claim {
		b = append(b, from.Expect[:]...)
	}
	expectEnd := len(b)
	if from.Deadline != 0 {
		// The server knows nothing of Advance.
		b = appendDeadline(b, from.Deadline.Add(-time.Duration(s.clock.shift.Load())))
	}
	w.room = b
	text := rueidis.BinaryString(b)
	w.value, w.record, w.expect, w.deadline = text[start:valueEnd], text[valueEnd:keyEnd], text[keyEnd:expectEnd], text[expectEnd:]
	w.at = text[:start+headLen] // beside the place, if it has one
	if claim && indexLater(rec.NextAt, s.clock.now()) {
		w.at = text[:placeLen]
	}
	return nil
}

// claims reports whether the write is for a record that is not there yet.
func (w *write) claims() bool { return w.expect == "" }

func (w *write) size() int { return len(w.value) + 256 }

// appendDeadline appends an instant in microseconds, rounded up: TIME has whole ones, and
// the first that is not before the instant is the first that is too late.
func appendDeadline(b []byte, at semel.Instant) []byte {
	us := int64(at) / 1000
	if int64(at)%1000 > 0 {
		us++
	}
	return strconv.AppendInt(b, us, 10)
}
