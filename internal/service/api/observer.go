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
	o.conflicts.Unverified, o.tally.Uncounted = semelhttp.DerivedPrincipal, refusedStranger
	o.ring.init(o.now())
	return o
}

// refusedStranger reports whether a record is that of an unverified caller whom the upstream
// refused. Such a call doesn't count against the caller's quota, so they could have any number
// of cells beside it.
func refusedStranger(rec *semel.Record) bool {
	return rec.Disposition == semel.DispositionAborted && (rec.BoundTo != "" || semelhttp.DerivedPrincipal(rec.Principal))
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
