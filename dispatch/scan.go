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
	"github.com/semelhq/semel/store"
)

// scanLimit is how many due records are read at a time, and how many messages one scan
// puts into lanes, or a few more. It bounds the memory that a backlog takes.
const scanLimit = 4096

// wholeEvery bounds how long a message can wait that came behind the part of the index where
// scans begin, because it was written late or its entry stayed where an earlier version was.
const wholeEvery = time.Minute

// missingAfter is how long a message must be overdue to count as missing from its lane.
const missingAfter = 10 * time.Minute

// scanLoop scans until ctx is done: every interval, and after wake.
func (d *Dispatcher) scanLoop(ctx context.Context) {
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
			d.report(err)
		} else if full {
			next /= 8
		}
		next = max(next, time.Since(began)) // long scans take at most half of the time
		// Jitter keeps dispatchers on one store from scanning together.
		timer.Reset(next + jitter(next/8))
	}
}

// scan queues due messages, and puts messages with an order into their lanes. It reports
// whether it left messages for another scan.
func (d *Dispatcher) scan(ctx context.Context) (full bool, err error) {
	all := d.takeNoted()
	tails, unread := d.loadTails(ctx, all)
	seen, until, full, err := d.view(ctx, len(all) > 0)
	if err != nil {
		d.note(slices.Collect(maps.Values(all))...)
		return false, err
	}
	for _, m := range seen {
		all[m.entry.Message] = m
	}
	found := map[laneID][]laneMessage{}
	for _, m := range all {
		if _, ok := tails[m.lane]; ok && m.entry.At <= until {
			found[m.lane] = append(found[m.lane], m)
			continue
		}
		// The end of its lane must be read first, or it is younger than the view.
		d.note(m)
		if !unread[m.lane] { // which the next scan tries again, and not this one without a pause
			d.wake()
		}
	}
	return full, each(slices.Collect(maps.Values(found)), func(of []laneMessage) error {
		id := of[0].lane
		err := d.extend(ctx, id, tails[id], of)
		switch {
		case errors.Is(err, errChanged):
			d.note(of...) // another was faster
			d.wake()
		case err != nil:
			return err
		default:
			d.enqueue(job{line: d.lines[id.Destination], lane: &id})
		}
		return nil
	})
}

// maxNoted bounds the messages that are noted. Scans find further ones.
const maxNoted = 1 << 14

// note has the next scan put messages into their lanes.
func (d *Dispatcher) note(messages ...laneMessage) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, m := range messages {
		if len(d.noted) < maxNoted {
			d.noted[m.entry.Message] = m
		}
	}
}

// takeNoted returns the messages noted since the last scan, by id.
func (d *Dispatcher) takeNoted() map[string]laneMessage {
	d.mu.Lock()
	defer d.mu.Unlock()
	noted := d.noted
	d.noted = map[string]laneMessage{}
	return noted
}

// loadTails reads the ends of the messages' lanes. It also returns the lanes that it couldn't
// read; their messages stay due.
func (d *Dispatcher) loadTails(ctx context.Context, messages map[string]laneMessage) (tails map[laneID]tail, unread map[laneID]bool) {
	unread = map[laneID]bool{}
	for _, m := range messages {
		unread[m.lane] = true
	}
	var mu sync.Mutex
	tails = map[laneID]tail{}
	d.report(each(slices.Collect(maps.Keys(unread)), func(id laneID) error {
		t, err := d.loadTail(ctx, id)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		tails[id] = t
		delete(unread, id)
		return nil
	}))
	return tails, unread
}

// laneMessage is a message that is in no lane yet.
type laneMessage struct {
	lane  laneID
	entry entry
	due   store.Instant
}

// view reads due records: it queues messages without an order key and lanes, and returns
// all messages that aren't in a lane yet and were due at until. If there are too many, until
// is earlier than now, and full is true.
//
// Set whole to put messages into lanes, because their order needs all due records. Otherwise
// view may skip a stretch without work for this dispatcher, such as expired records that can't
// be purged, so that it doesn't read a backlog again and again.
func (d *Dispatcher) view(ctx context.Context, whole bool) (seen []laneMessage, until store.Instant, full bool, err error) {
	until, err = d.store.Now(ctx)
	if err != nil {
		return nil, 0, false, err
	}
	d.seen.Store(int64(until))
	if whole = whole || d.low == "" || until.Sub(d.whole) >= wholeEvery; whole {
		d.low, d.whole = "", until
	}
	idle := true
	// The first page is small, because every scan reads all of it, however little comes after
	// d.low.
	for q := (store.DueQuery{Until: until, After: d.low, Limit: max(d.limit/64, 1)}); ; q.Limit = min(2*q.Limit, d.limit) {
		page, err := d.store.Due(ctx, q)
		if err != nil {
			d.low = "" // the place may be the cause
			return nil, 0, false, err
		}
		for i := range page.Records {
			rec := &page.Records[i]
			if len(seen) >= d.limit && second(rec.NextAt) > second(seen[0].due) {
				// Due records come in the order of seconds, so we have seen everything due
				// before this second.
				until = store.Instant(second(rec.NextAt)*int64(time.Second)) - 1
				return slices.DeleteFunc(seen, func(m laneMessage) bool { return m.due > until }), until, true, nil
			}
			idle = idle && !d.concerns(rec) && until.Sub(rec.NextAt) > 2*d.store.limit // no write takes longer
			d.takeUnordered(rec)
			for j := range rec.Outbox {
				if m, ok := d.fresh(rec, j, until); ok {
					seen = append(seen, m)
				}
			}
		}
		if q.After = page.Next; q.After == "" {
			return seen, until, false, nil
		}
		if idle {
			d.low = q.After
		}
	}
}

// concerns reports whether the record has a message that this dispatcher delivers, now or
// later.
func (d *Dispatcher) concerns(rec *semel.Record) bool {
	return slices.ContainsFunc(rec.Outbox, func(m store.Message) bool {
		return m.State == store.MessagePending && d.lines[m.Destination] != nil
	})
}

func second(at store.Instant) int64 { return int64(at) / int64(time.Second) }

// fresh returns a message with an order key, and whether it isn't in a lane yet, as far as
// the due index shows.
func (d *Dispatcher) fresh(rec *semel.Record, index int, until store.Instant) (laneMessage, bool) {
	m := &rec.Outbox[index]
	if m.Order == "" || m.State != store.MessagePending || m.NextAt > until || d.lines[m.Destination] == nil {
		return laneMessage{}, false
	}
	if rec.ID.Operation == slotOperation || m.Tries > 0 && until.Sub(m.NextAt) < missingAfter {
		return laneMessage{}, false
	}
	return laneMessage{laneID{rec.ID.Tenant, m.Destination, m.Order}, entryOf(rec, index), rec.NextAt}, true
}

// takeUnordered queues a record's due messages without an order key.
func (d *Dispatcher) takeUnordered(rec *semel.Record) {
	if id, ok := wakes(rec); ok {
		if l := d.lines[id.Destination]; l != nil {
			d.enqueue(job{line: l, lane: &id})
		}
		return
	}
	now := max(rec.UpdatedAt, store.Instant(d.seen.Load()))
	for i := range rec.Outbox {
		m := &rec.Outbox[i]
		l := d.lines[m.Destination]
		if l == nil || m.Order != "" || m.State != store.MessagePending || m.NextAt > now {
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

// putOff postpones, in the store, messages that didn't fit into the queue, so that they aren't
// scanned again and again.
func (d *Dispatcher) putOff(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case j := <-d.late:
			_, err := d.postpone(ctx, j.call, j.id, 0, 5*time.Second+jitter(10*time.Second))
			if ctx.Err() == nil {
				d.report(err)
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
