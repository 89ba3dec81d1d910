package redisstore

import (
	"sync"

	"github.com/redis/rueidis"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/recordcodec"
)

// write is one write on its way.
type write struct {
	record, due, born string // keys
	value, expect     string // see scriptWrite

	client rueidis.Client // that has sent it
	again  bool           // a run that may have made it was refused
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
	rec, sh := &from.Record, s.keys.shard(digest)
	b := appendPlace(w.room[:0], rec.CreatedAt, digest)
	b = appendDue(b, rec.NextAt)
	b, err := recordcodec.Append(b, rec)
	if err != nil {
		return err
	}
	valueEnd := len(b)
	b = append(append(b, sh.records...), digest[:]...)
	keyEnd := len(b)
	w.room = append(b, from.Expect[:]...)
	text := rueidis.BinaryString(w.room)
	w.record, w.due, w.born = text[valueEnd:keyEnd], sh.due, sh.born
	w.value, w.expect = text[:valueEnd], text[keyEnd:]
	if from.Expect.IsZero() {
		w.expect = indexNow(rec)
	}
	return nil
}

func (w *write) size() int     { return len(w.value) + 256 }
func (w *write) place() string { return w.value[:placeLen] }
func (w *write) at() string    { return w.value[placeLen:headLen] }

func (w *write) isClaim() bool { return len(w.expect) < len(semel.Revision{}) }

// token is the new revision.
func (w *write) token() string { return w.value[revisionAt : revisionAt+len(semel.Revision{})] }

// append appends what scriptWrite needs to know, but for the value.
func (w *write) append(keys, args []string) (k, a []string) {
	if keys = append(keys, w.record, w.due); w.isClaim() {
		keys = append(keys, w.born)
	}
	return keys, append(args, w.place(), w.at(), w.expect)
}
