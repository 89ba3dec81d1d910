package memstore

import (
	"context"
	"math"
	"slices"
	"sort"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// dueIndex lists the records that have a NextAt, in the order of their places. The list is in
// parts, none of them empty, so that a change moves only what is in one of them: it costs
// hardly more among a million records than among few.
type dueIndex struct{ parts [][]*semel.Record }

// maxPart is how many records a part has at most; see BenchmarkMaxPart.
const maxPart = 64

func dueAt(rec *semel.Record) place { return place{rec.NextAt, &rec.ID} }

// find returns where the record at a place is, or would be: the part, and the index in it.
func (x *dueIndex) find(p place) (n, i int, found bool) {
	behind := sort.Search(len(x.parts), func(n int) bool { return dueAt(x.parts[n][0]).compare(p) > 0 })
	if behind == 0 {
		return 0, 0, false
	}
	n = behind - 1
	i, found = slices.BinarySearchFunc(x.parts[n], p, func(rec *semel.Record, p place) int { return dueAt(rec).compare(p) })
	return n, i, found
}

// add adds a record, if it has a NextAt.
func (x *dueIndex) add(rec *semel.Record) {
	if rec.NextAt == 0 {
		return
	}
	if len(x.parts) == 0 {
		x.parts = [][]*semel.Record{{rec}}
		return
	}
	n, i, _ := x.find(dueAt(rec))
	part := slices.Insert(x.parts[n], i, rec)
	x.parts[n] = part
	if half := len(part) / 2; len(part) > maxPart {
		x.parts = slices.Insert(x.parts, n+1, slices.Clone(part[half:]))
		x.parts[n] = slices.Delete(part, half, len(part))
	}
}

// remove removes a record that was added.
func (x *dueIndex) remove(rec *semel.Record) {
	if rec.NextAt == 0 {
		return
	}
	n, i, _ := x.find(dueAt(rec))
	x.parts[n] = slices.Delete(x.parts[n], i, i+1)
	if len(x.parts[n]) == 0 {
		x.parts = slices.Delete(x.parts, n, n+1)
	}
}

// after returns up to most records that come after a place and are due at until.
func (x *dueIndex) after(p place, until store.Instant, most int) (recs []*semel.Record) {
	n, i, found := x.find(p)
	if found {
		i++
	}
	for ; n < len(x.parts); n, i = n+1, 0 {
		for _, rec := range x.parts[n][i:] {
			if rec.NextAt > until || len(recs) == most {
				return recs
			}
			recs = append(recs, rec)
		}
	}
	return recs
}

// Due is [store.DueIndex.Due].
func (s *Store) Due(_ context.Context, q store.DueQuery) (page store.DuePage, err error) {
	if s.closed.Load() {
		return page, errClosed
	}
	from, err := parsePlace(q.After, math.MinInt64)
	if err != nil || q.Limit <= 0 {
		return page, err
	}
	s.mu.Lock()
	recs := s.due.after(from, q.Until, min(q.Limit, math.MaxInt-1)+1)
	s.mu.Unlock()
	for i, rec := range recs {
		if i == q.Limit {
			page.Next = dueAt(recs[i-1]).String()
			break
		}
		page.Records = append(page.Records, *rec)
	}
	return page, nil
}
