package api

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/internal/conflicts"
	"github.com/semelhq/semel/internal/hub"
	"github.com/semelhq/semel/internal/tally"
)

// Observer records an engine's events, for the decisions that records show, for the list of
// conflicts and for the stream of decisions. Its memory is bounded, and it never makes the engine wait for a
// reader or a store.
type Observer struct {
	ring      ring
	tally     *tally.Tally
	conflicts *conflicts.Index
	now       func() time.Time
}

// NewObserver makes an observer. It serves one engine, and counts decisions in its store.
func NewObserver(st semel.Store) *Observer {
	o := &Observer{now: time.Now, tally: tally.New(st), conflicts: conflicts.New(st)}
	o.conflicts.Unverified = semelhttp.DerivedPrincipal
	// A call of an unverified caller whom the upstream refused doesn't count against the caller's
	// quota, so they could have any number of cells beside it.
	o.tally.Uncounted = func(rec *semel.Record) bool {
		return rec.Disposition == semel.DispositionAborted && (rec.BoundTo != "" || semelhttp.DerivedPrincipal(rec.Principal))
	}
	o.ring.init(o.now())
	return o
}

// Run writes the counts of decisions and the conflicts to the store, every few seconds and,
// unless somebody calls Close first, when ctx is done. Without it counts cover only this
// process, and conflicts are written when somebody lists them.
func (o *Observer) Run(ctx context.Context) {
	var work sync.WaitGroup
	work.Go(func() { o.conflicts.Run(ctx) })
	o.tally.Run(ctx)
	work.Wait()
}

type queue interface {
	State() (waiting int, lost uint64)
	Close(ctx context.Context) (lost int)
}

func (o *Observer) queues() map[string]queue {
	return map[string]queue{"counts": o.tally, "conflicts": o.conflicts.Listed, "payloads": o.conflicts.Payloads}
}

// Waiting calls tell for each kind of notes that are written behind deliveries (counts,
// conflicts and payloads), with how many wait, and how many were lost because too many waited
// or the store failed.
func (o *Observer) Waiting(tell func(kind string, waiting int, lost uint64)) {
	for kind, q := range o.queues() {
		waiting, lost := q.State()
		tell(kind, waiting, lost)
	}
}

// Close writes the waiting notes, within ctx. The error says how many it gives up. Later notes
// are lost.
func (o *Observer) Close(ctx context.Context) error {
	var work sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	for kind, q := range o.queues() {
		work.Go(func() {
			if n := q.Close(ctx); n > 0 {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, fmt.Errorf("%s of %d calls", kind, n))
			}
		})
	}
	work.Wait()
	return errors.Join(errs...)
}

// Events are for the engine's options, alone or together with others.
func (o *Observer) Events() *semel.Events {
	return &semel.Events{
		Decided: func(ev semel.Decided) {
			o.tally.Count(ev.ID, ev.Decision)
			o.conflicts.Decided(ev)
			ev.Presented = nil // its payload is the door's
			o.ring.add(event{kind: "decided", id: ev.ID, at: ev.At, decided: ev})
		},
		Answered: o.tally.Answered,
		Ended:    func(ev semel.Ended) { o.ring.add(event{kind: "ended", id: ev.ID, at: ev.At, ended: ev}) },
		Purged: func(ev semel.Purged) {
			o.conflicts.Purged(ev)
			o.ring.add(event{kind: "purged", id: ev.ID, at: o.now(), purged: &ev})
		},
		Erased: func(ev semel.Erased) {
			o.conflicts.Erased(ev)
			o.ring.erase(ev.Includes)
		},
		LeaseLost: func(ev semel.LeaseLost) {
			o.ring.add(event{kind: "lease_lost", id: ev.ID, at: o.now(), lost: &ev})
		},
	}
}

// ringSize is how many events wait for readers who come back.
const ringSize = 4096

// event is one of the engine's events, in the field of its kind. Those that are rare are kept
// apart, so that the ring is small.
type event struct {
	seq     int64
	kind    string
	id      semel.ID
	at      time.Time // by this machine's clock for purged and lost
	decided semel.Decided
	ended   semel.Ended
	purged  *semel.Purged
	lost    *semel.LeaseLost
}

// ring keeps the last events. Adding never waits for a reader.
type ring struct {
	mu      sync.Mutex
	events  [ringSize]event
	first   int64 // number of the first event ever
	next    int64 // number of the next event
	readers hub.Hub[struct{}]
}

// init starts counting at the time, so that numbers rise across restarts, and a reader of
// an earlier process notices that they missed something.
func (g *ring) init(start time.Time) {
	g.first = start.UnixMicro()
	g.next = g.first
}

func (g *ring) add(ev event) {
	g.mu.Lock()
	defer g.mu.Unlock()
	ev.seq = g.next
	g.events[ev.seq%ringSize] = ev
	g.next++
	g.readers.WakeAll()
}

// erase empties the events about erased identities, the purge itself included. Purges have this
// machine's time. Their numbers stay.
func (g *ring) erase(erased func(semel.ID, time.Time) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := range g.events {
		ev := &g.events[i]
		at := ev.at
		if ev.purged != nil || ev.lost != nil {
			at = time.Time{}
		}
		if ev.id != (semel.ID{}) && erased(ev.id, at) {
			*ev = event{seq: ev.seq, kind: erasedKind}
		}
	}
}

// erasedKind is the kind of an event that no reader gets any more.
const erasedKind = "erased"

// join adds a reader, whom wake notifies until leave, and returns the newest event's number.
func (g *ring) join() (wake <-chan struct{}, leave func(), newest int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	wake, leave = g.readers.Watch(struct{}{})
	return wake, leave, g.next - 1
}

// after appends to buf the events that follow number last, as many as buf has room for.
// next is the number of the first of them, or of the next event if there are none. It
// reports gap if there were others that aren't kept, or if this ring has no event with
// the number last: then buf starts with the oldest event.
func (g *ring) after(last int64, buf []event) (_ []event, next int64, gap bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	from := max(g.first, g.next-ringSize)
	if last >= g.next || last < from-1 {
		gap = true
	} else {
		from = last + 1
	}
	for seq := from; seq < g.next && len(buf) < cap(buf); seq++ {
		buf = append(buf, g.events[seq%ringSize])
	}
	return buf, from, gap
}
