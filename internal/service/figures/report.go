package figures

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// Report is what happened in some time, over all nodes.
type Report struct {
	// From is when the first step begins, and To is now, by the store's clock. Each Point
	// is about one Step, a minute or an hour.
	From, To time.Time
	Step     time.Duration
	// Nodes is how many processes have figures in the store, including ended ones.
	Nodes int
	// Alone says that the store doesn't answer: these are this process's own figures, and
	// others' as it last read them.
	Alone bool
	// Crowd is [Options].Crowd.
	Crowd int

	Total      Sums
	Operations []Operation // the one with the most duplicates first
	Series     []Count     // in order of door, operation and what
	Points     []Point     // one for each step, the oldest first

	// Repeated are the records with the most duplicates, Crowded the ones that had Crowd
	// deliveries at once, and Failing the ones with the most failed attempts. Each has up to
	// 50.
	Repeated, Crowded, Failing []Record
}

// Sums are the counts of a group of deliveries.
type Sums struct {
	// Deliveries counts the deliveries with a key that got a decision; Executed the ones that
	// executed, and Duplicates the others.
	Deliveries, Executed, Duplicates int64
	// Simultaneous are the deliveries that met a running attempt.
	Simultaneous int64
	// FailedAttempts are the attempts that ended failed, aborted or abandoned.
	FailedAttempts int64
	// Refused are the requests that a door has refused by itself; zero for an operation.
	Refused int64
	// FailedOpen are the requests that ran without a guard; see [FailedOpen].
	FailedOpen int64
}

// DuplicateShare is the share of the deliveries that did not execute, from 0 to 1.
func (s *Sums) DuplicateShare() float64 {
	if s.Deliveries == 0 {
		return 0
	}
	return float64(s.Duplicates) / float64(s.Deliveries)
}

func (s *Sums) count(what string, n int64) {
	switch what {
	case Simultaneous:
		s.Simultaneous += n
	case FailedAttempt:
		s.FailedAttempts += n
	case Refused:
		s.Refused += n
	case FailedOpen:
		s.FailedOpen += n
	case string(semel.Execute):
		s.Executed += n
		s.Deliveries += n
	default:
		s.Duplicates += n
		s.Deliveries += n
	}
}

// Operation has the sums of one operation.
type Operation struct {
	Name string
	Sums
}

// Count is the count of one series.
type Count struct {
	Series
	N int64
}

// Point has the sums of one step, which begins At.
type Point struct {
	At time.Time
	Sums
	// P50 and P99 are what half and 99 % of the deliveries had added to their time at
	// most, up to 19 % too long; see [semel.Decided].Added and [semel.Ended].Added. Zero if there were none.
	P50, P99 time.Duration
}

// maxListed bounds the lists of records in a report.
const maxListed = 50

// Read reports what happened in the last d, over all nodes: by minutes up to KeptMinutes,
// otherwise by hours, up to KeptHours. Lists of records are of whole hours. If the store
// doesn't answer, see Alone; an error is that of ctx.
func (f *Figures) Read(ctx context.Context, d time.Duration) (*Report, error) {
	now, err := f.store.Now(ctx)
	var nodes []counted
	if err == nil {
		nodes, err = f.others(ctx, now)
	} else {
		now = store.InstantOf(time.Now())
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	nodes = append(slices.Clip(nodes), f.mine(now.Time().Unix()))
	r := &Report{To: now.Time().UTC(), Step: time.Minute, Nodes: len(nodes), Alone: err != nil, Crowd: f.opts.Crowd}
	if d > KeptMinutes {
		r.Step = time.Hour
	}
	d = min(max(d, r.Step), KeptHours)
	r.From = r.To.Add(-d).Truncate(r.Step).Add(r.Step)
	r.fill(nodes)
	return r, nil
}

// mine returns this node's counts until now.
func (f *Figures) mine(now int64) counted {
	n := &f.own
	n.mu.Lock()
	defer n.mu.Unlock()
	f.gather(now)
	c := counted{minutes: n.minutes, hours: slices.Clone(n.hours), minute: n.minute}
	c.minute.records = n.records
	return c
}

// slots are the steps of a node that belong to the report.
func (r *Report) slots(c *counted) []slot {
	finished, running := c.minutes, c.minute
	if r.Step == time.Hour {
		finished = c.hours
		running.at -= running.at % 3600
	}
	return since(append(slices.Clip(finished), running), r.From.Unix())
}

// records returns a node's lists of records, by hour. The running hour's list comes with the
// running minute; the history's list of that hour is older.
func (r *Report) records(c *counted) map[int64][]Record {
	lists := map[int64][]Record{}
	from := r.From.Unix()
	for i := range c.hours {
		lists[c.hours[i].at] = c.hours[i].records
	}
	if len(c.minute.records) > 0 {
		lists[c.minute.at-c.minute.at%3600] = c.minute.records
	}
	maps.DeleteFunc(lists, func(at int64, _ []Record) bool { return at < from-from%3600 })
	return lists
}

// fill adds up the nodes' counts.
func (r *Report) fill(nodes []counted) {
	steps := map[int64]slot{}
	records := map[semel.ID]*Record{}
	for i := range nodes {
		for _, s := range r.slots(&nodes[i]) {
			if have, ok := steps[s.at]; ok {
				s = have.plus(s)
			}
			steps[s.at] = s
		}
		for _, list := range r.records(&nodes[i]) {
			for _, rec := range list {
				if have := records[rec.ID]; have != nil {
					have.add(&rec)
				} else {
					records[rec.ID] = &rec
				}
			}
		}
	}
	sum := newSlot(0)
	for at := r.From; !at.After(r.To); at = at.Add(r.Step) {
		s := steps[at.Unix()]
		p := Point{At: at, P50: quantile(s.added, 0.5), P99: quantile(s.added, 0.99)}
		for series, n := range s.counts {
			p.count(series.What, n)
			sum.counts[series] += n
		}
		r.Points = append(r.Points, p)
	}
	r.sum(sum.counts)
	var repeated, crowded, failing ranking
	for _, rec := range records {
		repeated.offer(rec, orders[0], maxListed)
		failing.offer(rec, orders[2], maxListed)
		if 1+rec.Peak >= int64(r.Crowd) {
			crowded.offer(rec, orders[1], maxListed)
		}
	}
	r.Repeated, r.Crowded, r.Failing = repeated, crowded, failing
}

func (r *Report) sum(counts map[Series]int64) {
	operations := map[string]*Operation{}
	for s, n := range counts {
		r.Total.count(s.What, n)
		r.Series = append(r.Series, Count{s, n})
		if s.Operation == "" {
			continue
		}
		op := operations[s.Operation]
		if op == nil {
			op = &Operation{Name: s.Operation}
			operations[s.Operation] = op
		}
		op.count(s.What, n)
	}
	slices.SortFunc(r.Series, func(a, b Count) int {
		return cmp.Or(cmp.Compare(a.Door, b.Door), cmp.Compare(a.Operation, b.Operation), cmp.Compare(a.What, b.What))
	})
	for _, op := range operations {
		r.Operations = append(r.Operations, *op)
	}
	slices.SortFunc(r.Operations, func(a, b Operation) int {
		return cmp.Or(cmp.Compare(b.Duplicates, a.Duplicates), cmp.Compare(b.Deliveries, a.Deliveries), cmp.Compare(a.Name, b.Name))
	})
}
