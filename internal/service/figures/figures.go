package figures

import (
	"cmp"
	"crypto/rand"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/internal/nodes"
)

// Things counted besides decisions, as [Series].What.
const (
	// Simultaneous counts the deliveries that met a running attempt: they got in_flight, or
	// waited for its outcome. Each has a decision, too.
	Simultaneous = "simultaneous"
	// FailedAttempt counts the attempts that ended failed, aborted or abandoned, so that the
	// call may have to be run again.
	FailedAttempt = "failed_attempt"
	// Refused counts the requests that a door has refused by itself. There is no operation.
	Refused = "refused"
	// FailedOpen counts the requests that ran without a guard while the store didn't answer;
	// see [semel.Delivered].FailedOpen. They have no decision.
	FailedOpen = "failed_open"
)

// Series names one counter. Its What is a [semel.Decision], or one of this package's words.
// Only counters of one tenant have a Tenant.
type Series struct{ Door, Operation, What, Tenant string }

// Other is the operation that everything counts under beyond maxSeries. Of tenants, it is the
// What of everything that their figures leave out.
const Other = "(other)"

// maxSeries bounds the counters of one node, so that its cells fit the store.
const maxSeries = 512

// maxRecords bounds the records of an hour that are counted one by one, some 300 bytes
// each. If there are more, the ones with the highest counts stay.
const maxRecords = 20_000

// Options configures [New].
type Options struct {
	// Crowd is from how many deliveries of one key at once, within a minute and with the one
	// that runs, the figures list its record and call Crowded with its operation, once in
	// that minute. Defaults to 11.
	Crowd   int
	Crowded func(operation string)
}

// Figures counts what the engine of one node tells, and reads the figures of all. Its
// methods may be called concurrently.
type Figures struct {
	store semel.Store
	opts  Options
	every time.Duration // counts are gathered for so long before they are written
	own   node          // what this node has counted
	peers reader        // what others have
	// tenants counts again for each tenant, in cells of its own, so that many tenants displace no
	// sum over all. It is nil in itself.
	tenants *Figures
	running *nodes.Running
	closed  atomic.Bool

	mu    *sync.Mutex       // of what deliveries write; tenants has the same
	fresh map[Series]*int64 // since the last take, of all series that there ever were
	added [lastBucket + 1]int64
	keys  map[semel.ID]*tally // of this hour
	// touched are the ones counted since the last take.
	touched []*tally
	hour    int64
}

type tally struct {
	Record
	minute, inMinute int64 // simultaneous deliveries of that minute
	touched          bool  // it is in Figures.touched
}

// New makes the figures of a node. Give its Events to the engine, and call Run.
func New(st semel.Store, opts *Options) *Figures {
	f := newFigures(st, "", rand.Text(), new(sync.Mutex))
	f.tenants = newFigures(st, "tenants/", f.own.id, f.mu)
	f.running = nodes.NewRunning(st, f.own.id)
	if opts != nil {
		f.opts = *opts
	}
	f.opts.Crowd = cmp.Or(f.opts.Crowd, 11)
	return f
}

func newFigures(st semel.Store, prefix, id string, mu *sync.Mutex) *Figures {
	f := &Figures{store: st, every: time.Second, mu: mu, fresh: map[Series]*int64{}, keys: map[semel.ID]*tally{}}
	f.own.init(st, prefix, id)
	f.peers.cache = map[string]peer{}
	return f
}

// Events are for the engine's options, alone or together with others.
func (f *Figures) Events() *semel.Events {
	return &semel.Events{Decided: f.decided, Ended: f.ended, Answered: f.answered, Erased: f.erased}
}

func (f *Figures) decided(e semel.Decided) {
	if door.Internal(e.ID.Operation) {
		return
	}
	met := e.Decision == semel.InFlight || e.Waited > 0
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count(e.Door, e.ID, string(e.Decision))
	if met {
		f.count(e.Door, e.ID, Simultaneous)
	}
	if e.Decision != semel.Execute {
		f.took(e.ID.Tenant, e.Added)
		t := f.of(e.ID, e.At)
		t.Repeats++
		if met {
			f.meet(t, e.At)
		}
	}
}

func (f *Figures) ended(e semel.Ended) {
	if door.Internal(e.ID.Operation) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if e.Added > 0 {
		f.took(e.ID.Tenant, e.Added)
	}
	switch e.Disposition {
	case semel.DispositionFailed, semel.DispositionAborted, semel.DispositionAbandoned:
		f.count(e.Door, e.ID, FailedAttempt)
		t := f.of(e.ID, e.At)
		t.Failed++
		t.Attempt = max(t.Attempt, e.Attempt)
	}
}

func (f *Figures) answered(e semel.Delivered) {
	switch {
	case e.FailedOpen:
		f.mu.Lock()
		defer f.mu.Unlock()
		f.count(e.Door, e.ID, FailedOpen)
	case e.Code != "" && e.Decision == "":
		f.mu.Lock()
		defer f.mu.Unlock()
		f.sum(Series{Door: e.Door, What: Refused}) // the tenant may be unknown
	}
}

// count adds one, over all and for the tenant. The caller holds f.mu, as for all below.
func (f *Figures) count(door string, id semel.ID, what string) {
	f.sum(Series{Door: door, Operation: id.Operation, What: what})
	f.tenants.sum(Series{door, id.Operation, what, id.Tenant})
}

// took counts what Semel has added to a delivery's time. Of a tenant, the What of a series is
// the number of the bucket.
func (f *Figures) took(tenant string, added time.Duration) {
	bucket := bucketOf(added)
	f.added[bucket]++
	f.tenants.sum(Series{What: strconv.Itoa(bucket), Tenant: tenant})
}

func (f *Figures) sum(s Series) {
	n := f.fresh[s]
	if n == nil && len(f.fresh) >= maxSeries {
		if f.tenants == nil {
			s = Series{What: Other}
		} else if s.Operation != "" {
			s.Operation = Other
		}
		n = f.fresh[s]
	}
	if n == nil {
		n = new(int64)
		f.fresh[s] = n
	}
	*n++
}

func (f *Figures) of(id semel.ID, at time.Time) *tally {
	t := f.keys[id]
	if t == nil {
		if len(f.keys) >= maxRecords {
			f.prune()
		}
		t = &tally{Record: Record{ID: id}}
		f.keys[id] = t
	}
	if !t.touched {
		t.touched = true
		f.touched = append(f.touched, t)
	}
	t.Last = max(t.Last, at.Unix())
	return t
}

func (f *Figures) meet(t *tally, at time.Time) {
	t.Simultaneous++
	if m := at.Unix() / 60; m != t.minute {
		t.minute, t.inMinute = m, 0
	}
	t.inMinute++
	t.Peak = max(t.Peak, t.inMinute)
	if 1+t.inMinute == int64(f.opts.Crowd) && f.opts.Crowded != nil {
		f.opts.Crowded(t.ID.Operation)
	}
}

// prune makes room for half of maxRecords: it forgets the records with the lowest counts.
func (f *Figures) prune() {
	for least := int64(2); len(f.keys) > maxRecords/2; least *= 2 {
		low := func(t *tally) bool { return t.Repeats+t.Failed < least }
		maps.DeleteFunc(f.keys, func(_ semel.ID, t *tally) bool { return low(t) })
		f.touched = slices.DeleteFunc(f.touched, low)
	}
}

// take returns the counts since the last take, and the touched records, which begin anew each hour.
func (f *Figures) take(hour int64) (fresh slot, touched []Record) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fresh = newSlot(0)
	for series, n := range f.fresh {
		if *n > 0 {
			fresh.counts[series], *n = *n, 0
		}
	}
	for bucket, n := range f.added {
		if n > 0 {
			fresh.added[bucket], f.added[bucket] = n, 0
		}
	}
	for _, t := range f.touched {
		t.touched = false
		touched = append(touched, t.Record)
	}
	f.touched = f.touched[:0]
	if f.hour != 0 && hour != f.hour {
		clear(f.keys)
		if f.tenants == nil {
			clear(f.fresh) // each hour, the tenants that come first have a place
		}
	}
	f.hour = hour
	return fresh, touched
}
