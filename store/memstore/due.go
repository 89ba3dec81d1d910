package memstore

import (
	"context"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/paging"
	"github.com/semelhq/semel/store"
)

// dueIndex lists the records that have a NextAt, by its second and then in the order in which
// they came, so adding or removing one costs the same among a million as among a few.
type dueIndex struct {
	seconds map[int64]*dueSecond
	order   []int64 // the keys of seconds, ascending
}

// dueSecond holds the records due in one second. Places in the list are cursors, so a removed
// record leaves a gap until the whole list is empty.
type dueSecond struct {
	list []*semel.Record
	left int // in the list
}

func second(at store.Instant) int64 { return int64(at) / int64(time.Second) }

// add adds a record, if it has a NextAt, and returns its place in its list.
func (x *dueIndex) add(rec *semel.Record) int {
	if rec.NextAt == 0 {
		return 0
	}
	sec := second(rec.NextAt)
	b := x.seconds[sec]
	if b == nil {
		b = new(dueSecond)
		x.seconds[sec] = b
		i, _ := slices.BinarySearch(x.order, sec)
		x.order = slices.Insert(x.order, i, sec)
	}
	b.list = append(b.list, rec)
	b.left++
	return len(b.list) - 1
}

// replace puts a record that is due at the same time, or nil, in the place of another.
func (x *dueIndex) replace(rec *semel.Record, place int, by *semel.Record) {
	if rec.NextAt == 0 {
		return
	}
	b := x.seconds[second(rec.NextAt)]
	if b.list[place] = by; by != nil {
		return
	}
	if b.left--; b.left == 0 {
		b.list = b.list[:0]
	}
}

// forget drops empty seconds from the beginning, up to last.
func (x *dueIndex) forget(last int64) {
	n := 0
	for ; n < len(x.order) && x.order[n] <= last && x.seconds[x.order[n]].left == 0; n++ {
		delete(x.seconds, x.order[n])
	}
	x.order = slices.Delete(x.order, 0, n)
}

// duePlace is a place in the index.
type duePlace struct {
	second int64
	index  int
}

// page returns up to limit records that come after a place and are due at until, the place of
// the last one, and whether there are more. It ends early if they are large.
func (x *dueIndex) page(after duePlace, until store.Instant, limit int, budget paging.Budget) (recs []semel.Record, last duePlace, more bool) {
	from, _ := slices.BinarySearch(x.order, after.second)
	for _, sec := range x.order[from:] {
		if sec > second(until) {
			break
		}
		list, first := x.seconds[sec].list, 0
		if sec == after.second {
			first = min(after.index+1, len(list))
		}
		for i, rec := range list[first:] {
			switch {
			case rec == nil || rec.NextAt > until:
			case len(recs) == limit || budget.Spent:
				return recs, last, true
			default:
				recs = append(recs, *rec)
				budget.Spend(len(rec.Result.Data))
				last = duePlace{sec, first + i}
			}
		}
	}
	return recs, last, false
}

// String returns the place as the cursor of a page.
func (p duePlace) String() string {
	return strconv.FormatInt(p.second, 10) + "." + strconv.Itoa(p.index)
}

// parseDuePlace is the reverse of String. An empty cursor stands before all places.
func parseDuePlace(cursor string) (duePlace, error) {
	if cursor == "" {
		return duePlace{second: math.MinInt64}, nil
	}
	sec, index, _ := strings.Cut(cursor, ".")
	n, err := strconv.ParseInt(sec, 10, 64)
	i, bad := strconv.ParseUint(index, 10, 31)
	if err != nil || bad != nil {
		return duePlace{}, errCursor
	}
	return duePlace{n, int(i)}, nil
}

// Due is [store.DueIndex.Due].
func (s *Store) Due(ctx context.Context, q store.DueQuery) (page store.DuePage, err error) {
	after, err := parseDuePlace(q.After)
	if err != nil || q.Limit <= 0 {
		return page, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed.Load() {
		return page, errClosed
	}
	s.due.forget(second(q.Until))
	recs, last, more := s.due.page(after, q.Until, q.Limit, paging.New(ctx))
	if page.Records = recs; more {
		page.Next = last.String()
	}
	return page, nil
}
