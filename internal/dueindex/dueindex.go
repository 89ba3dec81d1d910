// Package dueindex finds the records of a store in memory that are due, in pages between which
// others come and go.
package dueindex

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/semelhq/semel/internal/paging"
	"github.com/semelhq/semel/store"
)

// Index lists the records that have a NextAt, by its second and then in the order in which they
// came, so adding or removing one costs the same among a million as among a few. The zero Index is
// empty. It has no lock.
type Index struct {
	seconds map[int64]*bucket
	order   []int64 // the keys of seconds, ascending
}

// bucket holds the records due in one second. Places in the list are cursors, so a removed
// record leaves a gap until the whole list is empty.
type bucket struct {
	list []*store.Record
	left int // in the list
}

func second(at store.Instant) int64 { return int64(at) / int64(time.Second) }

// Add adds a record, if it has a NextAt, and returns its place in its list.
func (x *Index) Add(rec *store.Record) int {
	if rec.NextAt == 0 {
		return 0
	}
	sec := second(rec.NextAt)
	b := x.seconds[sec]
	if b == nil {
		b = new(bucket)
		if x.seconds == nil {
			x.seconds = map[int64]*bucket{}
		}
		x.seconds[sec] = b
		i, _ := slices.BinarySearch(x.order, sec)
		x.order = slices.Insert(x.order, i, sec)
	}
	b.list = append(b.list, rec)
	b.left++
	return len(b.list) - 1
}

// Replace puts a record that is due at the same time, or nil, in the place of another.
func (x *Index) Replace(rec *store.Record, place int, by *store.Record) {
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

// Forget frees the remains of records that were due at until and are gone.
func (x *Index) Forget(until store.Instant) {
	n, last := 0, second(until)
	for ; n < len(x.order) && x.order[n] <= last && x.seconds[x.order[n]].left == 0; n++ {
		delete(x.seconds, x.order[n])
	}
	x.order = slices.Delete(x.order, 0, n)
}

// Place is a place in the index.
type Place struct {
	second int64
	index  int
}

// Page returns up to limit records that come after a place and are due at until, the place of
// the last one, and whether there are more. It ends early if they are large.
func (x *Index) Page(after Place, until store.Instant, limit int, budget paging.Budget) (recs []store.Record, last Place, more bool) {
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
				last = Place{sec, first + i}
			}
		}
	}
	return recs, last, false
}

// String returns the place as the cursor of a page.
func (p Place) String() string {
	return strconv.FormatInt(p.second, 10) + "." + strconv.Itoa(p.index)
}

// Parse is the reverse of String. An empty cursor stands before all places.
func Parse(cursor string) (_ Place, ok bool) {
	if cursor == "" {
		return Place{second: math.MinInt64}, true
	}
	sec, index, _ := strings.Cut(cursor, ".")
	n, err := strconv.ParseInt(sec, 10, 64)
	i, bad := strconv.ParseUint(index, 10, 31)
	return Place{n, int(i)}, err == nil && bad == nil
}
