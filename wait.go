package semel

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/semelhq/semel/store"
)

// Bounds of RetryAfter for duplicates, and of the pauses between polls.
const (
	minRetryAfter = 50 * time.Millisecond
	minHeldRetry  = time.Second
	minPoll       = 20 * time.Millisecond
	maxPoll       = time.Second
)

// Await returns the record of an identity once its newest attempt has ended or is
// held, or its current state when the wait, bounded by Operation.MaxWait, is over. It
// also waits for an attempt whose lease has ended, because that will be settled by
// policy. It returns [ErrNotFound] if there is no record, or it is purged meanwhile, and
// the error of ctx if that ends first. If too many wait already it doesn't wait; see
// Options.MaxWaiters.
func (in Internal) Await(ctx context.Context, id ID, wait time.Duration) (Record, error) {
	e := in.engine
	rec, err := e.Lookup(ctx, id)
	if err != nil || rec.State != Processing || rec.Held {
		return rec, err
	}
	wait = min(wait, e.policyOf(id.Operation).MaxWait)
	if wait <= 0 {
		return rec, nil
	}
	last, err := e.await(ctx, watchKey{id: id, outcome: true}, wait)
	switch {
	case err != nil:
		return Record{}, err
	case last == nil: // still running, but a renewal or an effect may have changed it
		return e.Lookup(ctx, id)
	case last.State == absent:
		return Record{}, ErrNotFound
	}
	return *last, nil
}

// await blocks until what key says has come, or the wait is over. It returns the stored
// record then, which is the zero Record if it is gone, or nil if nothing came in time. An
// attempt whose lease has ended is no longer running. All waiters share the result
// (singleflight); don't change it.
func (e *Engine) await(ctx context.Context, key watchKey, wait time.Duration) (*Record, error) {
	if !e.waiters.admit(key.id.Tenant) {
		return nil, nil
	}
	defer e.waiters.dismiss(key.id.Tenant)
	end := time.NewTimer(wait)
	defer end.Stop()
	for {
		w, before, leave := e.waiters.share(key, func(w *watch) (stop func()) {
			ctx, stop := context.WithCancel(e.done)
			e.goBackground(func(context.Context) { e.watch(ctx, key, w) })
			return stop
		})
		over := false
		var err error
		select {
		case <-w.over:
			over = true
		case <-end.C:
		case <-ctx.Done():
			err = ctx.Err()
		case <-e.done.Done():
		}
		leave()
		switch {
		case !over:
			return nil, err
		case w.looks > before:
			return w.rec, w.err
		}
		// The record was read before this waiter joined, and may be older than cur.
	}
}

// watch reads a record for all deliveries of this engine that wait for the same thing,
// until it happens or none of them is left: a large result is read once for all of them.
// Outcomes of this engine wake it at once; those of others by the store's notice, if it
// has notices, or by polling.
func (e *Engine) watch(ctx context.Context, key watchKey, w *watch) {
	var notice <-chan struct{}
	poll := minPoll
	if ws := e.extras.Watch; ws != nil {
		ch, stop := ws.Watch(ctx, key.id)
		defer stop()
		// The notice is a hint that may be lost on the way, so polling goes
		// on, rarely.
		notice, poll = ch, maxPoll
	}
	woken, unlisten := e.waiters.listen(key.id)
	defer func() { unlisten() }()
	for {
		// Look first: the change may have come before listen.
		e.waiters.begin(w)
		rec, now, err := e.look(ctx, key.id)
		if ctx.Err() != nil {
			return
		}
		if err != nil || key.reached(rec, e.leaseTime(rec, now)) {
			e.waiters.finish(key, w, rec, err)
			return
		}
		next := poll
		if left := rec.LeaseUntil.Sub(now); left > 0 {
			next = min(poll, max(left, time.Millisecond))
		}
		pause := time.NewTimer(next)
		select {
		case <-woken:
			unlisten()
			woken, unlisten = e.waiters.listen(key.id) // the old channel is closed for good
		case <-notice:
		case <-pause.C:
			poll = min(poll*2, maxPoll)
		case <-ctx.Done():
			pause.Stop()
			return
		}
		pause.Stop()
	}
}

// look reads a record, which is the zero Record if there is none, and then the clock. It
// stops when ctx ends.
func (e *Engine) look(ctx context.Context, id ID) (*Record, store.Instant, error) {
	call, stop := context.WithTimeout(ctx, e.opts.StoreTimeout)
	defer stop()
	rec, err := e.store.Get(call, id)
	switch {
	case errors.Is(err, ErrNotFound):
		return &none, 0, nil
	case err != nil && ctx.Err() != nil:
		return nil, 0, err // which says nothing about the store
	case err != nil:
		return nil, 0, e.storeError("get", id, err)
	}
	now, err := e.now(call)
	return rec, now, err
}

// latency is how long executions of one operation take, as a moving average.
type latency struct {
	nanos atomic.Int64
}

// observe takes one execution into account.
func (l *latency) observe(d time.Duration) {
	old := l.nanos.Load()
	if old == 0 {
		l.nanos.CompareAndSwap(0, max(int64(d), 1))
		return
	}
	// A lost race loses one observation, which an average can bear.
	l.nanos.CompareAndSwap(old, old+(int64(d)-old)/8)
}

// retryAfter is when a duplicate may expect the outcome: the rest of a usual execution
// that has run for age. If no execution was observed yet, or this one takes longer than
// usual, the pause grows with its age. It never exceeds the rest of the lease.
func (l *latency) retryAfter(age, lease time.Duration) time.Duration {
	usual := time.Duration(l.nanos.Load())
	left := usual - age
	if left < minRetryAfter {
		left = max(age/2, minRetryAfter)
	}
	return max(min(left, lease), minRetryAfter)
}
