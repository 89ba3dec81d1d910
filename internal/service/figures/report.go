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

// Report is what happened in some time, over all nodes: the body of GET /v1/figures.
type Report struct {
	From time.Time `json:"from" doc:"When the first point begins."`
	To   time.Time `json:"to" doc:"Now, by the store's clock."`
	// StepSeconds is how long each Point is, a minute or an hour.
	StepSeconds int `json:"step_seconds" doc:"60 or 3600"`
	// Nodes counts the processes that have figures in the store.
	Nodes int `json:"nodes" doc:"How many processes have figures in the store, those that have ended included."`
	// Alone says that the store doesn't answer.
	Alone bool `json:"alone" doc:"The store doesn't answer, so these are the figures of this node, and what it had read of others before."`
	// Tenant is nil for all.
	Tenant  *string `json:"tenant,omitempty" doc:"Whose figures these are. Absent: those of all tenants."`
	Partial bool    `json:"partial,omitempty" doc:"In this time a node had more tenants than it counts one by one, so some of these counts may be too low."`
	// Crowd is [Options].Crowd.
	Crowd int  `json:"crowd" doc:"A record with so many deliveries at once within a minute, the one that ran included, is in crowded."`
	Total Sums `json:"total"`

	Operations []OperationSums `json:"operations" nullable:"false" doc:"The one with the most stopped duplicates first."`
	// Series are in order of door, operation and what.
	Series []Count `json:"series" nullable:"false"`
	Points []Point `json:"points" nullable:"false" doc:"One for each step, the oldest first."`

	// Repeated, Crowded and Failing have up to 50 records each.
	Repeated []RecordCounts `json:"repeated" nullable:"false" doc:"The records that were delivered again most often. For one tenant, this list and the next two have the tenant's records among those that stand out over all."`
	Crowded  []RecordCounts `json:"crowded" nullable:"false" doc:"Those with crowd deliveries at once within a minute, or more."`
	Failing  []RecordCounts `json:"failing" nullable:"false" doc:"Those with the most failed attempts."`

	nodes []counted
}

// Sums are the counts of a group of deliveries.
type Sums struct {
	Deliveries     int64   `json:"deliveries" doc:"Deliveries with a key that got a decision."`
	Executed       int64   `json:"executed"`
	Stopped        int64   `json:"stopped" doc:"Duplicates that got the outcome of another delivery, at once or after waiting for it."`
	StoppedShare   float64 `json:"stopped_share" doc:"Stopped, of what was executed or stopped, from 0 to 1. How often clients ask about a running call doesn't change it."`
	Polls          int64   `json:"polls" doc:"Deliveries that were told to come back, because an attempt was running."`
	Conflicts      int64   `json:"conflicts" doc:"Deliveries that had another payload under the same key."`
	TurnedAway     int64   `json:"turned_away" doc:"Deliveries that were refused for any other reason: the call is held, say, or of another caller."`
	Simultaneous   int64   `json:"simultaneous" doc:"Deliveries that met a running attempt."`
	FailedAttempts int64   `json:"failed_attempts" doc:"Attempts that ended failed, aborted or abandoned."`
	// Refused is zero for an operation, and for a tenant.
	Refused int64 `json:"refused" doc:"Requests that a door has refused by itself. They have no operation, and count for no tenant."`
	// FailedOpen counts [FailedOpen].
	FailedOpen int64 `json:"failed_open" doc:"Requests that ran without a guard while the store didn't answer, because their route has store_down: fail_open. They may have happened twice."`
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
	case string(semel.Replay):
		s.Stopped += n
	case string(semel.InFlight):
		s.Polls += n
	case string(semel.Conflict):
		s.Conflicts += n
	default:
		s.TurnedAway += n
	}
	s.Deliveries = s.Executed + s.Stopped + s.Polls + s.Conflicts + s.TurnedAway
	if ended := s.Executed + s.Stopped; ended > 0 {
		s.StoppedShare = float64(s.Stopped) / float64(ended)
	}
}

// OperationSums has the sums of one operation.
type OperationSums struct {
	Operation string `json:"operation"`
	Sums
}

// Count is the count of one [Series].
type Count struct {
	Door      string `json:"door"`
	Operation string `json:"operation"`
	What      string `json:"what" doc:"A decision, or simultaneous, failed_attempt, refused or failed_open."`
	Count     int64  `json:"count"`
}

// Point has the sums of one step, which begins At, and what half and 99 % of the deliveries had
// added to their time at most; see [semel.Decided].Added and [semel.Ended].Added.
type Point struct {
	At time.Time `json:"at"`
	Sums
	P50 float64 `json:"added_p50_seconds" doc:"What half of the deliveries had added to their time at most; up to 19 % too long, and zero without deliveries."`
	P99 float64 `json:"added_p99_seconds"`
}

const maxListed = 50

// Read reports what happened in the last d, to one tenant, or to all if it is nil, over all nodes:
// by minutes up to KeptMinutes, otherwise by hours, up to KeptHours. Lists of records are of whole
// hours. In an hour, a node counts up to 512 series of tenants, first come, first served. If there
// were more, the report is Partial. If there are nearly as many all the time, the oldest minutes
// and hours don't fit a cell and are dropped. If the store doesn't answer, see Alone; an error is
// that of ctx.
func (f *Figures) Read(ctx context.Context, d time.Duration, tenant *string) (*Report, error) {
	r, err := f.report(ctx, d)
	if err != nil {
		return nil, err
	}
	r.Tenant = tenant
	r.list()
	if tenant != nil {
		of, err := f.tenants.report(ctx, d)
		if err != nil {
			return nil, err
		}
		r.nodes, r.Alone = of.nodes, r.Alone || of.Alone
	}
	r.count(r.nodes)
	return r, nil
}

// report begins a report, with the nodes that it counts.
func (f *Figures) report(ctx context.Context, d time.Duration) (*Report, error) {
	now, err := f.store.Now(ctx)
	if err != nil {
		now = store.InstantOf(time.Now())
	}
	nodes, err := f.others(ctx, now, err)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	nodes = append(slices.Clip(nodes), f.mine(now.Time().Unix()))
	step := time.Minute
	if d > KeptMinutes {
		step = time.Hour
	}
	r := &Report{
		To: now.Time().UTC(), StepSeconds: int(step / time.Second), Nodes: len(nodes), Alone: err != nil, Crowd: f.opts.Crowd,
		Operations: []OperationSums{}, Series: []Count{}, Points: []Point{}, nodes: nodes,
	}
	d = min(max(d, step), KeptHours)
	r.From = r.To.Add(-d).Truncate(step).Add(step)
	return r, nil
}

func (f *Figures) mine(now int64) counted {
	n := &f.own
	n.mu.Lock()
	defer n.mu.Unlock()
	f.gather(now)
	c := counted{id: n.id, minutes: n.minutes, hours: slices.Clone(n.hours), minute: n.minute}
	c.minute.records = n.records
	return c
}

func (r *Report) slots(c *counted) []slot {
	finished, running := c.minutes, c.minute
	if r.StepSeconds == 3600 {
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

// count adds up what nodes have counted, of the report's tenant if it has one.
func (r *Report) count(nodes []counted) {
	steps := map[int64]slot{}
	for i := range nodes {
		for _, s := range r.slots(&nodes[i]) {
			if r.Tenant != nil {
				var left bool
				s, left = s.of(*r.Tenant)
				r.Partial = r.Partial || left
			}
			if have, ok := steps[s.at]; ok {
				s = have.plus(s)
			}
			steps[s.at] = s
		}
	}
	sum := newSlot(0)
	for at := r.From; !at.After(r.To); at = at.Add(time.Duration(r.StepSeconds) * time.Second) {
		s := steps[at.Unix()]
		p := Point{At: at, P50: quantile(s.added, 0.5).Seconds(), P99: quantile(s.added, 0.99).Seconds()}
		for series, n := range s.counts {
			p.count(series.What, n)
			sum.counts[series] += n
		}
		r.Points = append(r.Points, p)
	}
	r.sum(sum.counts)
}

// list ranks the records that nodes list.
func (r *Report) list() {
	records := map[semel.ID]*Record{}
	for i := range r.nodes {
		for _, list := range r.records(&r.nodes[i]) {
			for _, rec := range list {
				if r.Tenant != nil && rec.ID.Tenant != *r.Tenant {
					continue
				}
				if have := records[rec.ID]; have != nil {
					have.add(&rec)
				} else {
					records[rec.ID] = &rec
				}
			}
		}
	}
	var repeated, crowded, failing ranking
	for _, rec := range records {
		repeated.offer(rec, orders[0], maxListed)
		failing.offer(rec, orders[2], maxListed)
		if 1+rec.Peak >= int64(r.Crowd) {
			crowded.offer(rec, orders[1], maxListed)
		}
	}
	r.Repeated, r.Crowded, r.Failing = repeated.listed(), crowded.listed(), failing.listed()
}

func (r *Report) sum(counts map[Series]int64) {
	operations := map[string]*OperationSums{}
	for s, n := range counts {
		r.Total.count(s.What, n)
		r.Series = append(r.Series, Count{s.Door, s.Operation, s.What, n})
		if s.Operation == "" {
			continue
		}
		op := operations[s.Operation]
		if op == nil {
			op = &OperationSums{Operation: s.Operation}
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
	slices.SortFunc(r.Operations, func(a, b OperationSums) int {
		return cmp.Or(cmp.Compare(b.Stopped, a.Stopped), cmp.Compare(b.Deliveries, a.Deliveries), cmp.Compare(a.Operation, b.Operation))
	})
}
