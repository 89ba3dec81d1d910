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

// scanLimit is how many due records one look finds.
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
		full, err := d.scan(ctx)
		if err != nil && ctx.Err() == nil {
			d.trouble(err)
		} else if full {
			next /= 8
		}
		// Dispatchers of one store drift apart.
		timer.Reset(next + jitter(next/8))
	}
}

// scan takes what is due into the queues, and messages into their lanes. It reports
// whether there may be more than it saw.
func (d *Dispatcher) scan(ctx context.Context) (full bool, err error) {
	found := d.lanes.take()
	tails := d.loadTails(ctx, found)
	recs, whole, until, err := d.view(ctx)
	if err != nil {
		for id, of := range found {
			d.noteAll(id, of)
		}
		return false, err
	}
	for i := range recs {
		d.takeUnordered(&recs[i])
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
	for i := range whole {
		rec := &whole[i]
		for j := range rec.Outbox {
			id, ok := d.fresh(rec, j, until)
			if !ok {
				continue
			}
			if _, ok := tails[id]; ok {
				found[id][rec.Outbox[j].ID] = entryOf(rec, j)
				continue
			}
			d.lanes.note(id, entryOf(rec, j)) // the end of its lane has to be read first
			d.wake()
		}
	}
	err = each(slices.Collect(maps.Keys(tails)), func(id laneID) error {
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
	return len(recs) >= d.limit, err
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

// view is what is due now: recs, at most d.limit, and whole, which is all that was
// due at until. They are the same as long as there is not too much.
func (d *Dispatcher) view(ctx context.Context) (recs, whole []semel.Record, until semel.Instant, err error) {
	until, err = d.store.Now(ctx)
	if err != nil {
		return nil, nil, 0, err
	}
	recs, err = d.dueUntil(ctx, until)
	if err != nil {
		return nil, nil, 0, err
	}
	d.seen.Store(int64(until))
	for whole = recs; len(whole) >= d.limit; {
		at := make([]semel.Instant, len(whole))
		for i := range whole {
			at[i] = whole[i].NextAt
		}
		slices.Sort(at)
		until = min(at[len(at)/2], until-1)
		if whole, err = d.dueUntil(ctx, until); err != nil {
			return nil, nil, 0, err
		}
	}
	return recs, whole, until, nil
}

// dueUntil is what is due at a time, at most d.limit records.
func (d *Dispatcher) dueUntil(ctx context.Context, until semel.Instant) ([]semel.Record, error) {
	page, err := d.due.Due(ctx, semel.DueQuery{Until: until, Limit: d.limit})
	return page.Records, err
}

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

// takeUnordered queues what a record has that waits for nothing else. It reports
// false where there was no room.
func (d *Dispatcher) takeUnordered(rec *semel.Record) bool {
	if id, ok := wakes(rec); ok {
		l := d.lines[id.Destination]
		return l == nil || d.enqueue(job{line: l, lane: &id})
	}
	room := true
	now := max(rec.UpdatedAt, semel.Instant(d.seen.Load()))
	for i := range rec.Outbox {
		m := &rec.Outbox[i]
		if m.State != semel.MessagePending || m.NextAt > now {
			continue
		}
		j := job{line: d.lines[m.Destination], call: rec.ID, id: m.ID}
		if j.line != nil && (m.Order != "" || d.enqueue(j)) {
			continue
		}
		// There is no room, or another knows the destination. It must not hide
		// what is due after it.
		select {
		case d.late <- j:
		default:
			room = false
		}
	}
	return room
}

// putOff puts off in the store what there is no room for.
func (d *Dispatcher) putOff(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case j := <-d.late:
			pause := 5*time.Second + jitter(10*time.Second)
			if j.line == nil {
				pause = time.Minute
			}
			_, err := d.postpone(ctx, j.call, j.id, 0, pause)
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
