package memstore

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strconv"
	"strings"
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

// due returns all records of the earliest seconds that have any after a place, until
// there are limit of them or more.
func (x *dueIndex) due(from place, until semel.Instant, limit int) (recs []semel.Record) {
	var seconds []int64
	for sec := range x.seconds {
		if sec >= second(from.at) && sec <= second(until) {
			seconds = append(seconds, sec)
		}
	}
	slices.Sort(seconds)
	for _, sec := range seconds {
		if len(recs) >= limit {
			break
		}
		for en := x.seconds[sec]; en != nil; en = en.earlier {
			if en.rec.NextAt <= until && from.before(en.rec) {
				recs = append(recs, *en.rec)
			}
		}
	}
	return recs
}

// place is that of a record among those that are due, in their order. The zero place
// is before all.
type place struct {
	at semel.Instant
	id string // ID.Encode
}

func placeOf(rec *semel.Record) place { return place{rec.NextAt, rec.ID.Encode()} }

func (p place) before(rec *semel.Record) bool {
	return rec.NextAt > p.at || rec.NextAt == p.at && rec.ID.Encode() > p.id
}

func (p place) String() string { return strconv.FormatInt(int64(p.at), 10) + "." + p.id }

func parsePlace(s string) (p place, err error) {
	if s == "" {
		return place{at: math.MinInt64}, nil
	}
	at, id, _ := strings.Cut(s, ".")
	n, err := strconv.ParseInt(at, 10, 64)
	if _, bad := semel.DecodeID(id); err != nil || bad != nil {
		return p, &semel.Error{Code: semel.CodeInvalidCall, Message: "the place to continue after is not one of this store"}
	}
	return place{semel.Instant(n), id}, nil
}

// Due is [semel.DueStore.Due].
func (s *Store) Due(_ context.Context, q semel.DueQuery) (page semel.DuePage, err error) {
	if s.closed.Load() {
		return page, errClosed
	}
	from, err := parsePlace(q.After)
	if err != nil || q.Limit <= 0 {
		return page, err
	}
	var recs []semel.Record
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		recs = append(recs, sh.due.due(from, q.Until, q.Limit+1)...)
		sh.mu.Unlock()
	}
	slices.SortFunc(recs, func(a, b semel.Record) int {
		return cmp.Or(cmp.Compare(a.NextAt, b.NextAt), cmp.Compare(a.ID.Encode(), b.ID.Encode()))
	})
	page.Records = recs
	if len(recs) > q.Limit {
		page.Records = recs[:q.Limit:q.Limit]
		page.Next = placeOf(&recs[q.Limit-1]).String()
	}
	return page, nil
}
