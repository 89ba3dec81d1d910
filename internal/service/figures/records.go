package figures

import (
	"cmp"
	"slices"
	"sort"
	"time"

	"github.com/semelhq/semel"
)

// Record has the counts of one record in the hours of a report.
type Record struct {
	ID semel.ID
	// Repeats counts the deliveries that did not execute, whatever they got; Simultaneous the ones among them
	// that met a running attempt, and Peak the most of these in one minute on one node.
	Repeats, Simultaneous, Peak int64
	// Failed counts the attempts that ended failed, aborted or abandoned, and Attempt is
	// the number of the newest of them. It is the record's own number, so it also covers
	// attempts that no node counted.
	Failed  int64
	Attempt int
	// Last is when something was counted last, in Unix seconds.
	Last int64
}

// orders are the counts that may make a record worth listing.
var orders = []func(*Record) int64{
	func(r *Record) int64 { return r.Repeats },
	func(r *Record) int64 { return r.Peak },
	func(r *Record) int64 { return r.Failed },
}

// maxNoted bounds the records that a node lists for an hour, by each of their counts.
const maxNoted = 20

// noted picks the records with the highest counts, among the ones it picked before and the
// ones that have changed since. Counts only rise, so no other record can be among them.
func noted(before, changed []Record) []Record {
	have := make(map[semel.ID]bool, len(changed))
	for i := range changed {
		have[changed[i].ID] = true
	}
	before = slices.DeleteFunc(slices.Clone(before), func(r Record) bool { return have[r.ID] })
	clear(have)
	var list []Record
	for _, by := range orders {
		var highest ranking
		for _, all := range [][]Record{before, changed} {
			for i := range all {
				highest.offer(&all[i], by, maxNoted)
			}
		}
		for _, r := range highest {
			if !have[r.ID] {
				have[r.ID] = true
				list = append(list, r)
			}
		}
	}
	return list
}

// ranking is a list of records, the one with the highest count first.
type ranking []Record

// offer takes a record in if it is among the n highest and its count isn't zero.
func (l *ranking) offer(r *Record, by func(*Record) int64, n int) {
	if by(r) == 0 || len(*l) == n && compare(r, &(*l)[n-1], by) >= 0 {
		return
	}
	i := sort.Search(len(*l), func(i int) bool { return compare(r, &(*l)[i], by) < 0 })
	*l = slices.Insert(*l, i, *r)
	*l = (*l)[:min(n, len(*l))]
}

// RecordCounts are the counts of a [Record], as reports list them.
type RecordCounts struct {
	Record         string    `json:"record" doc:"The record's id."`
	Tenant         string    `json:"tenant"`
	Operation      string    `json:"operation"`
	Repeats        int64     `json:"repeats" doc:"Deliveries of the record that did not execute, whatever they got: also those that were told to come back, and refused ones."`
	Simultaneous   int64     `json:"simultaneous"`
	Peak           int64     `json:"peak" doc:"The most simultaneous deliveries in one minute on one node."`
	FailedAttempts int64     `json:"failed_attempts"`
	Attempt        int       `json:"attempt" doc:"The number of the newest failed attempt."`
	Last           time.Time `json:"last"`
}

func (l ranking) listed() []RecordCounts {
	out := make([]RecordCounts, 0, len(l))
	for i := range l {
		r := &l[i]
		out = append(out, RecordCounts{
			r.ID.Encode(), r.ID.Tenant, r.ID.Operation, r.Repeats, r.Simultaneous, r.Peak, r.Failed, r.Attempt, time.Unix(r.Last, 0).UTC(),
		})
	}
	return out
}

// compare is negative if a stands before b.
func compare(a, b *Record, by func(*Record) int64) int {
	return cmp.Or(
		cmp.Compare(by(b), by(a)), cmp.Compare(b.Last, a.Last), cmp.Compare(a.ID.Tenant, b.ID.Tenant),
		cmp.Compare(a.ID.Operation, b.ID.Operation), cmp.Compare(a.ID.Key, b.ID.Key), cmp.Compare(a.ID.Principal, b.ID.Principal),
	)
}

// add adds what another node, or another hour, has counted for the same record.
func (r *Record) add(more *Record) {
	r.Repeats += more.Repeats
	r.Simultaneous += more.Simultaneous
	r.Peak = max(r.Peak, more.Peak)
	r.Failed += more.Failed
	r.Attempt = max(r.Attempt, more.Attempt)
	r.Last = max(r.Last, more.Last)
}
