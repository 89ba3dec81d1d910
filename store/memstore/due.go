package memstore

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/semelhq/semel"
)

// dueIndex finds records by the second of their NextAt. Adding costs one append;
// places of records that have moved on are recognised and dropped when they come
// due.
type dueIndex struct {
	seconds map[int64][]*entry
	scan    uint64
}

func (x *dueIndex) add(at time.Time, en *entry) {
	if x.seconds == nil {
		x.seconds = map[int64][]*entry{}
	}
	sec := at.Unix()
	x.seconds[sec] = append(x.seconds[sec], en)
}

// due appends records that are due, those of the earliest seconds first, until
// there are limit of them, and forgets places that are void. Records stay in the
// index until they change.
func (x *dueIndex) due(dst []semel.Record, until time.Time, limit int) []semel.Record {
	x.scan++
	last := until.Unix()
	var seconds []int64
	for sec := range x.seconds {
		if sec <= last {
			seconds = append(seconds, sec)
		}
	}
	slices.Sort(seconds)
	enough := len(dst) + limit
	for _, sec := range seconds {
		entries := x.seconds[sec]
		kept := entries[:0]
		for _, en := range entries {
			if en.rec == nil || en.rec.NextAt.Unix() != sec || en.seen == x.scan {
				continue
			}
			en.seen = x.scan
			kept = append(kept, en)
			if len(dst) < enough && !en.rec.NextAt.After(until) {
				dst = append(dst, *en.rec)
			}
		}
		clear(entries[len(kept):])
		if x.seconds[sec] = kept; len(kept) == 0 {
			delete(x.seconds, sec)
		}
		if len(dst) >= enough {
			break
		}
	}
	return dst
}

// Due is [semel.DueStore.Due]; those that have been due for longest come first,
// to the second.
func (s *Store) Due(_ context.Context, until time.Time, limit int) ([]semel.Record, error) {
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
		return cmp.Or(a.NextAt.Compare(b.NextAt), cmp.Compare(a.ID.Key, b.ID.Key))
	})
	return recs[:min(limit, len(recs))], nil
}
