package memstore

import (
	"cmp"
	"context"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// dueIndex has the entries whose records have a NextAt, in the order of their places.
// It is a treap, a randomly balanced tree, through the entries themselves, so a query
// costs time for what it finds, however many records there are.
type dueIndex struct{ root *entry }

// place is a record's place in the order of due records. The zero place is before all.
type place struct {
	at store.Instant
	id semel.ID
}

func placeOf(rec *semel.Record) place { return place{rec.NextAt, rec.ID} }

func (p *place) compare(rec *semel.Record) int {
	if p.at != rec.NextAt {
		return cmp.Compare(p.at, rec.NextAt)
	}
	return cmp.Or(
		cmp.Compare(p.id.Tenant, rec.ID.Tenant), cmp.Compare(p.id.Principal, rec.ID.Principal),
		cmp.Compare(p.id.Operation, rec.ID.Operation), cmp.Compare(p.id.Key, rec.ID.Key),
	)
}

// move makes next the record of en, which may have none yet, and updates the index.
func (x *dueIndex) move(en *entry, next *semel.Record) {
	if en.rec != nil && en.rec.NextAt == next.NextAt {
		en.rec = next
		return
	}
	if en.rec != nil {
		x.remove(en)
	}
	if en.rec = next; next.NextAt != 0 {
		at := placeOf(next)
		en.weight = rand.Uint32()
		x.root = x.root.insert(en, &at)
	}
}

// remove takes en out, if its record is in.
func (x *dueIndex) remove(en *entry) {
	if en.rec.NextAt == 0 {
		return
	}
	at := placeOf(en.rec)
	x.root = x.root.erase(&at)
	en.before, en.after = nil, nil
}

// insert adds en, which has the place at, to the tree below t and returns its root.
func (t *entry) insert(en *entry, at *place) *entry {
	switch {
	case t == nil:
		return en
	case en.weight > t.weight:
		en.before, en.after = t.split(at)
		return en
	case at.compare(t.rec) < 0:
		t.before = t.before.insert(en, at)
	default:
		t.after = t.after.insert(en, at)
	}
	return t
}

// split splits the tree below t into the entries before a place and those after it.
func (t *entry) split(at *place) (before, after *entry) {
	switch {
	case t == nil:
		return nil, nil
	case at.compare(t.rec) < 0:
		before, t.before = t.before.split(at)
		return before, t
	default:
		t.after, after = t.after.split(at)
		return t, after
	}
}

// erase removes the entry at a place from the tree below t. It must exist.
func (t *entry) erase(at *place) *entry {
	switch c := at.compare(t.rec); {
	case c == 0:
		return merge(t.before, t.after)
	case c < 0:
		t.before = t.before.erase(at)
	default:
		t.after = t.after.erase(at)
	}
	return t
}

// merge makes one tree of two, of which the first is before the second.
func merge(before, after *entry) *entry {
	switch {
	case before == nil:
		return after
	case after == nil:
		return before
	case before.weight > after.weight:
		before.after = merge(before.after, after)
		return before
	default:
		after.before = merge(before, after.before)
		return after
	}
}

// follow appends up to most records that come after a place and are due at until.
func (t *entry) follow(from *place, until store.Instant, most int, recs []*semel.Record) []*semel.Record {
	if t == nil {
		return recs
	}
	behind := from.compare(t.rec) < 0
	if behind {
		recs = t.before.follow(from, until, most, recs)
	}
	if len(recs) >= most || t.rec.NextAt > until {
		return recs
	}
	if behind {
		recs = append(recs, t.rec)
	}
	if len(recs) < most {
		recs = t.after.follow(from, until, most, recs)
	}
	return recs
}

// String is the place in a page's Next.
func (p *place) String() string {
	return strconv.FormatInt(int64(p.at), 10) + "." + p.id.Encode()
}

func parsePlace(s string) (p place, err error) {
	if s == "" {
		return place{at: math.MinInt64}, nil
	}
	at, text, _ := strings.Cut(s, ".")
	n, err := strconv.ParseInt(at, 10, 64)
	id, bad := store.DecodeID(text)
	if err != nil || bad != nil {
		return p, &semel.Error{Code: semel.CodeInvalidCall, Message: "the place to continue after is not one of this store"}
	}
	return place{store.Instant(n), id}, nil
}

// Due is [store.DueIndex.Due].
func (s *Store) Due(_ context.Context, q store.DueQuery) (page store.DuePage, err error) {
	from, err := parsePlace(q.After)
	if err == nil && s.closed.Load() {
		err = errClosed
	}
	if err != nil || q.Limit <= 0 {
		return page, err
	}
	s.mu.Lock()
	recs := s.due.root.follow(&from, q.Until, min(q.Limit, math.MaxInt-1)+1, nil)
	s.mu.Unlock()
	if len(recs) > q.Limit {
		recs = recs[:q.Limit]
		last := placeOf(recs[q.Limit-1])
		page.Next = last.String()
	}
	for _, rec := range recs {
		page.Records = append(page.Records, *rec)
	}
	return page, nil
}
