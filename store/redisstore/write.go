package redisstore

import (
	"sync"

	"github.com/redis/rueidis"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/recordcodec"
)

// write is one write on its way.
type write struct {
	shard             *shard
	record            string // key
	value, expect, at string // see scriptWrite

	client rueidis.Client // that has sent it
	err    error
	made   bool
	there  rueidis.RedisMessage // where it was not made: see scriptWrite

	done chan struct{} // receives when it was answered; nil where nobody has waited yet
	room []byte        // has the texts
}

// writes are free. Only those that were answered are used again: while the client may
// still send one, its texts must not change.
var writes = sync.Pool{New: func() any { return new(write) }}

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
	w.room = b
	text := rueidis.BinaryString(b)
	w.value, w.record, w.expect = text[start:valueEnd], text[valueEnd:keyEnd], text[keyEnd:]
	w.at = text[:start+headLen] // beside the place, if it has one
	if claim && indexLater(rec.NextAt, s.clock.now()) {
		w.at = text[:placeLen]
	}
	return nil
}

func (w *write) size() int { return len(w.value) + 256 }

// token is the new revision.
func (w *write) token() string { return w.value[revisionAt : revisionAt+len(semel.Revision{})] }
