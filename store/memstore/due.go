package memstore

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/semelhq/semel"
)

// dueIndex finds records by the second of their NextAt. The entries of one second
// are a list through the entries themselves, so moving one costs no memory.
type dueIndex struct {
	seconds map[int64]*entry // the newest of each
}

func second(at semel.Instant) int64 { return int64(at) / int64(time.Second) }

// move makes next the record of en, which may have none yet.
func (x *dueIndex) move(en *entry, next *semel.Record) {
	if en.rec != nil && en.rec.NextAt != next.NextAt {
		x.remove(en)
	}
	add := next.NextAt != 0 && (en.rec == nil || en.rec.NextAt != next.NextAt)
	en.rec = next
	if !add {
		return
	}
	if x.seconds == nil {
		x.seconds = map[int64]*entry{}
	}
	sec := second(next.NextAt)
	if en.earlier = x.seconds[sec]; en.earlier != nil {
		en.earlier.later = en
	}
	x.seconds[sec] = en
}

// remove takes en out, if its record is in.
func (x *dueIndex) remove(en *entry) {
	if en.rec.NextAt == 0 {
		return
	}
	if en.earlier != nil {
		en.earlier.later = en.later
	}
	switch sec := second(en.rec.NextAt); {
	case en.later != nil:
		en.later.earlier = en.earlier
	case en.earlier != nil:
		x.seconds[sec] = en.earlier
	default:
		delete(x.seconds, sec)
	}
	en.earlier, en.later = nil, nil
}

// due appends records that are due, those of the earliest seconds first, until
// there are limit of them.
func (x *dueIndex) due(dst []semel.Record, until semel.Instant, limit int) []semel.Record {
	var seconds []int64
	for sec := range x.seconds {
		if sec <= second(until) {
			seconds = append(seconds, sec)
		}
	}
	slices.Sort(seconds)
	enough := len(dst) + limit
	for _, sec := range seconds {
		for en := x.seconds[sec]; en != nil && len(dst) < enough; en = en.earlier {
			if en.rec.NextAt <= until {
				dst = append(dst, *en.rec)
			}
		}
	}
	return dst
}

// Due is [semel.DueStore.Due]; those that have been due for longest come first,
// to the second.
func (s *Store) Due(_ context.Context, until semel.Instant, limit int) ([]semel.Record, error) {
	if s.closed.Load() {
		return nil, errClosed
	}
	var recs []semel.Record
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		recs = sh.due.due(recs, until, limit)
		sh.mu.Unlock()
	}
	slices.SortFunc(recs, func(a, b semel.Record) int {
		return cmp.Or(cmp.Compare(a.NextAt, b.NextAt), cmp.Compare(a.ID.Key, b.ID.Key))
	})
	return recs[:min(limit, len(recs))], nil
}
