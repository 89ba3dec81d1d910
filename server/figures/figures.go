package figures

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
)

// What is counted beside decisions, as [Series].What.
const (
	// Simultaneous counts the deliveries that met a running attempt: they got in_flight, or
	// waited for its outcome. Each has a decision, too.
	Simultaneous = "simultaneous"
	// FailedAttempt counts the attempts that ended failed, aborted or abandoned, so that the
	// call may have to be run again.
	FailedAttempt = "failed_attempt"
	// Refused counts the requests that a door has refused by itself. There is no operation.
	Refused = "refused"
)

// Series is what is counted apart. What is a [semel.Decision], or one of this package's
// words.
type Series struct{ Door, Operation, What string }

// Other is the operation of what is counted when there are more than maxSeries already.
const Other = "(other)"

// maxSeries bounds what one node counts apart, so that its cells fit the store.
const maxSeries = 512

// maxRecords bounds the records of an hour that are counted one by one, some 300 bytes
// each. If there are more, those with the highest counts stay.
const maxRecords = 20_000

// Options configures [New].
type Options struct {
	// KeyRate is how many simultaneous deliveries a key may have in a minute before the
	// figures list its record. Defaults to 10.
	KeyRate int
	// Interval is how long counts are gathered before they are written. Defaults to one
	// second.
	Interval time.Duration
}

// Figures counts what the engine of one node tells, and reads the figures of all. Its
// methods may be called concurrently.
type Figures struct {
	opts  Options
	store semel.Store
	own   node   // what this node has counted
	peers reader // what others have

	mu    sync.Mutex // of what deliveries write
	fresh slot
	known map[Series]struct{}
	keys  map[semel.ID]*tally // of this hour
	hour  int64
}

// tally is what is counted for one record in one hour.
type tally struct {
	duplicates, simultaneous, failed int64
	attempt                          int
	minute, inMinute, peak           int64 // simultaneous deliveries of that minute, and the most in one
	at                               int64
}

// New makes the figures of a node. Give its Events to the engine, and call Run.
func New(st semel.Store, opts *Options) *Figures {
	f := &Figures{store: st, known: map[Series]struct{}{}, keys: map[semel.ID]*tally{}, fresh: newSlot(0)}
	if opts != nil {
		f.opts = *opts
	}
	f.opts.KeyRate = cmp.Or(f.opts.KeyRate, 10)
	f.opts.Interval = cmp.Or(f.opts.Interval, time.Second)
	f.own.init(st)
	f.peers.cache = map[string]peer{}
	return f
}

// Events are for the engine's options, alone or together with others.
func (f *Figures) Events() *semel.Events {
	return &semel.Events{Decided: f.decided, Ended: f.ended, Answered: f.answered}
}

func (f *Figures) decided(e semel.Event) {
	if door.Internal(e.ID.Operation) {
		return
	}
	met := e.Decision == semel.InFlight || e.Waited > 0
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count(e.Door, e.ID.Operation, string(e.Decision))
	if met {
		f.count(e.Door, e.ID.Operation, Simultaneous)
	}
	if e.Decision != semel.Execute {
		f.fresh.added[bucketOf(e.Added)]++
		t := f.of(e.ID, e.At)
		t.duplicates++
		if met {
			t.meet(e.At)
		}
	}
}

func (f *Figures) ended(e semel.Event) {
	if door.Internal(e.ID.Operation) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if e.Added > 0 {
		f.fresh.added[bucketOf(e.Added)]++
	}
	switch e.Disposition {
	case semel.DispositionFailed, semel.DispositionAborted, semel.DispositionAbandoned:
		f.count(e.Door, e.ID.Operation, FailedAttempt)
		t := f.of(e.ID, e.At)
		t.failed++
		t.attempt = max(t.attempt, e.Attempt)
	}
}

func (f *Figures) answered(e semel.Event) {
	if e.Code == "" || e.Decision != "" {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count(e.Door, "", Refused)
}

// count adds one. The caller holds f.mu, as for all below.
func (f *Figures) count(door, operation, what string) {
	s := Series{door, operation, what}
	if _, ok := f.known[s]; !ok {
		if len(f.known) >= maxSeries && operation != "" {
			s.Operation = Other
		}
		f.known[s] = struct{}{}
	}
	f.fresh.counts[s]++
}

// of is the tally of a record.
func (f *Figures) of(id semel.ID, at time.Time) *tally {
	t := f.keys[id]
	if t == nil {
		if len(f.keys) >= maxRecords {
			f.prune()
		}
		t = &tally{}
		f.keys[id] = t
	}
	t.at = max(t.at, at.Unix())
	return t
}

func (t *tally) meet(at time.Time) {
	t.simultaneous++
	if m := at.Unix() / 60; m != t.minute {
		t.minute, t.inMinute = m, 0
	}
	t.inMinute++
	t.peak = max(t.peak, t.inMinute)
}

// prune makes room: it keeps the tenth of the records that has the highest counts.
func (f *Figures) prune() {
	ids := make([]semel.ID, 0, len(f.keys))
	for id := range f.keys {
		ids = append(ids, id)
	}
	weight := func(id semel.ID) int64 { t := f.keys[id]; return t.duplicates + t.failed }
	slices.SortFunc(ids, func(a, b semel.ID) int { return cmp.Compare(weight(b), weight(a)) })
	for _, id := range ids[len(ids)/10:] {
		delete(f.keys, id)
	}
}

// take returns what was counted since the last take; if that is anything, also the records
// of note of the hour. In another hour than before, records are counted from zero again.
func (f *Figures) take(hour int64) (fresh slot, records []Record) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fresh, f.fresh = f.fresh, newSlot(0)
	if !fresh.empty() {
		records = f.ofNote()
	}
	if f.hour != 0 && hour != f.hour {
		clear(f.keys)
	}
	f.hour = hour
	return fresh, records
}

// maxNoted bounds the records that a node lists for an hour, by each of their counts.
const maxNoted = 20

// ofNote lists the records with the highest counts. The caller holds f.mu.
func (f *Figures) ofNote() []Record {
	return noted(func(yield func(Record) bool) {
		for id, t := range f.keys {
			if !yield(Record{
				ID: id, Duplicates: t.duplicates, Simultaneous: t.simultaneous, Peak: t.peak,
				Failed: t.failed, Attempt: t.attempt, Last: t.at,
			}) {
				return
			}
		}
	})
}
