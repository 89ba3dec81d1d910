package dispatch

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/semelhq/semel"
)

// scanLimit is how many due records are read at a time, and how many messages one look
// puts into lanes, or a few more.
const scanLimit = 4096

// lost is after how much time a message of a lane that is due is taken for one that
// its lane does not know.
const lost = 10 * time.Minute

// look scans until ctx is done: every interval, and when somebody asks.
func (d *Dispatcher) look(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-d.kick:
		}
		next := d.every
		began := time.Now()
		full, err := d.scan(ctx)
		if err != nil && ctx.Err() == nil {
			d.trouble(err)
		} else if full {
			next /= 8
		}
		next = max(next, time.Since(began)) // a look at very much is not all that is done
		// Dispatchers of one store drift apart.
		timer.Reset(next + jitter(next/8))
	}
}

// scan takes what is due into the queues, and messages into their lanes. It reports
// whether there is more to put into lanes than it did.
func (d *Dispatcher) scan(ctx context.Context) (full bool, err error) {
	found := d.lanes.take()
	tails := d.loadTails(ctx, found)
	seen, until, full, err := d.view(ctx)
	if err != nil {
		for id, of := range found {
			d.noteAll(id, of)
		}
		return false, err
	}
	for id, of := range found { // what is younger than the view has to wait for the next
		for name, en := range of {
			if en.At > until {
				delete(of, name)
				d.lanes.note(id, en)
				d.wake()
			}
		}
	}
	for _, m := range seen {
		if _, ok := tails[m.lane]; ok {
			found[m.lane][m.entry.Message] = m.entry
			continue
		}
		d.lanes.note(m.lane, m.entry) // the end of its lane has to be read first
		d.wake()
	}
	return full, each(slices.Collect(maps.Keys(tails)), func(id laneID) error {
		var entries []entry
		for _, en := range found[id] {
			entries = append(entries, en)
		}
		if len(entries) == 0 {
			return nil
		}
		if err := d.extend(ctx, id, tails[id], entries); err != nil {
			if errors.Is(err, errChanged) {
				d.noteAll(id, found[id]) // another was faster
				d.wake()
				return nil
			}
			return err
		}
		d.enqueue(job{line: d.lines[id.Destination], lane: &id})
		return nil
	})
}

// loadTails reads the ends of lanes. Those that can't be read are left to be noted
// again.
func (d *Dispatcher) loadTails(ctx context.Context, found map[laneID]map[string]entry) map[laneID]tail {
	var mu sync.Mutex
	tails := map[laneID]tail{}
	d.trouble(each(slices.Collect(maps.Keys(found)), func(id laneID) error {
		t, err := d.loadTail(ctx, id)
		if err != nil {
			return err // its messages stay due
		}
		mu.Lock()
		defer mu.Unlock()
		tails[id] = t
		return nil
	}))
	return tails
}

// sighting is a message that is in no lane yet.
type sighting struct {
	lane  laneID
	entry entry
	due   semel.Instant
}

// view looks at everything that is due, whosever it is: it queues what waits for
// nothing else, and returns the messages that are in no lane yet, all that were due at
// until. Where there are many, that is earlier than now, and full is true.
func (d *Dispatcher) view(ctx context.Context) (seen []sighting, until semel.Instant, full bool, err error) {
	until, err = d.store.Now(ctx)
	if err != nil {
		return nil, 0, false, err
	}
	d.seen.Store(int64(until))
	for q := (semel.DueQuery{Until: until, Limit: d.limit}); ; {
		page, err := d.store.Due(ctx, q)
		if err != nil {
			return nil, 0, false, err
		}
		for i := range page.Records {
			rec := &page.Records[i]
			if len(seen) >= d.limit && second(rec.NextAt) > second(seen[0].due) {
				// Everything that is due before this second was seen, for what is due
				// comes in the order of seconds.
				until = semel.Instant(second(rec.NextAt)*int64(time.Second)) - 1
				return slices.DeleteFunc(seen, func(m sighting) bool { return m.due > until }), until, true, nil
			}
			d.takeUnordered(rec)
			for j := range rec.Outbox {
				if id, ok := d.fresh(rec, j, until); ok {
					seen = append(seen, sighting{id, entryOf(rec, j), rec.NextAt})
				}
			}
		}
		if q.After = page.Next; q.After == "" {
			return seen, until, false, nil
		}
	}
}

func second(at semel.Instant) int64 { return int64(at) / int64(time.Second) }

// fresh reports whether a message is in no lane yet, as far as the due index can
// tell, and its lane.
func (d *Dispatcher) fresh(rec *semel.Record, index int, until semel.Instant) (laneID, bool) {
	m := &rec.Outbox[index]
	if m.Order == "" || m.State != semel.MessagePending || m.NextAt > until || d.lines[m.Destination] == nil {
		return laneID{}, false
	}
	if rec.ID.Operation == slotOperation || m.Tries > 0 && until.Sub(m.NextAt) < lost {
		return laneID{}, false
	}
	return laneID{rec.ID.Tenant, m.Destination, m.Order}, true
}

func (d *Dispatcher) noteAll(id laneID, of map[string]entry) {
	for _, en := range of {
		d.lanes.note(id, en)
	}
}

// takeUnordered queues what a record has that waits for nothing else.
func (d *Dispatcher) takeUnordered(rec *semel.Record) {
	if id, ok := wakes(rec); ok {
		if l := d.lines[id.Destination]; l != nil {
			d.enqueue(job{line: l, lane: &id})
		}
		return
	}
	now := max(rec.UpdatedAt, semel.Instant(d.seen.Load()))
	for i := range rec.Outbox {
		m := &rec.Outbox[i]
		l := d.lines[m.Destination]
		if l == nil || m.Order != "" || m.State != semel.MessagePending || m.NextAt > now {
			continue
		}
		j := job{line: l, call: rec.ID, id: m.ID}
		if d.enqueue(j) {
			continue
		}
		select {
		case d.late <- j:
		default: // it is found again
		}
	}
}

// putOff puts off in the store what there is no room for, so that it is not found
// again and again.
func (d *Dispatcher) putOff(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case j := <-d.late:
			_, err := d.postpone(ctx, j.call, j.id, 0, 5*time.Second+jitter(10*time.Second))
			if ctx.Err() == nil {
				d.trouble(err)
			}
		}
	}
}

// jitter is a random time up to limit.
func jitter(limit time.Duration) time.Duration { return rand.N(max(limit, 0) + 1) }

// each calls f for all items, up to 16 at a time, and returns the errors together.
func each[T any](items []T, f func(T) error) error {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	gate := make(chan struct{}, 16)
	for _, item := range items {
		gate <- struct{}{}
		wg.Go(func() {
			defer func() { <-gate }()
			if err := f(item); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
