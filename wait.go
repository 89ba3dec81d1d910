package semel

import (
	"context"
	"errors"
	"time"

	"github.com/semelhq/semel/internal/engine/waiting"
	"github.com/semelhq/semel/store"
)

// Bounds of RetryAfter for duplicates, and of the pauses between polls.
const (
	minRetryAfter = waiting.MinRetryAfter
	minHeldRetry  = time.Second
	minPoll       = 20 * time.Millisecond
	maxPoll       = time.Second
)

// Await returns the record of an identity once its newest attempt has ended or is held, or its
// current state when the wait, bounded by Operation.MaxWait, is over. It keeps waiting when the
// lease has ended, because policy will settle the attempt. It returns [ErrNotFound] if there is
// no record, or it is purged meanwhile, and the error of ctx if that ends first. If too many
// wait already it doesn't wait; see Options.MaxWaiters.
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

// await blocks until the event that key names has come, or the wait is over. It returns the
// record stored then, the zero Record if it is gone, or nil if nothing came in time. An
// attempt is no longer running once its lease has ended. All waiters share the result
// (singleflight); don't change it.
func (e *Engine) await(ctx context.Context, key watchKey, wait time.Duration) (*Record, error) {
	if !e.waiters.Admit(key.id.Tenant) {
		return nil, nil
	}
	defer e.waiters.Dismiss(key.id.Tenant)
	end := time.NewTimer(wait)
	defer end.Stop()
	for {
		w, before, leave := e.waiters.Share(key, func(w *waiting.Watch[*Record]) (stop func()) {
			ctx, stop := context.WithCancel(e.done)
			e.goBackground(func(context.Context) { e.watch(ctx, key, w) })
			return stop
		})
		over := false
		var err error
		select {
		case <-w.Over:
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
		case w.Looks > before:
			return w.Value, w.Err
		}
		// The record was read before this waiter joined, and may be older than cur.
	}
}

// watch reads a record for all deliveries of this engine that wait for the same thing, until
// it happens or they have all gone: a large result is read once for all of them. It learns of
// this engine's outcomes at once, and of others' by the store's notices, if it has them, or by
// polling.
func (e *Engine) watch(ctx context.Context, key watchKey, w *waiting.Watch[*Record]) {
	var notice <-chan struct{}
	poll := minPoll
	if ws := e.extras.Watch; ws != nil {
		ch, stop := ws.Watch(ctx, key.id)
		defer stop()
		// The notice is a hint that may be lost on the way, so keep polling, but rarely.
		notice, poll = ch, maxPoll
	}
	woken, unlisten := e.waiters.Listen(key.id)
	defer func() { unlisten() }()
	for {
		// Look first: the change may have come before listen.
		e.waiters.Begin(w)
		rec, now, err := e.look(ctx, key.id)
		if ctx.Err() != nil {
			return
		}
		if err != nil || key.reached(rec, e.leaseTime(rec, now)) {
			e.waiters.Finish(key, w, rec, err)
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
			woken, unlisten = e.waiters.Listen(key.id) // the old channel is closed for good
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
		return nil, 0, e.storeError(ctx, "get", id, err)
	}
	now, err := e.now(call)
	return rec, now, err
}

// waiters are the deliveries of this engine that wait for an outcome.
type waiters struct {
	waiting.Seats[string] // by tenant
	waiting.Wakes
	waiting.Watches[watchKey, *Record]
}

// watchKey says what to wait for: with change, until another version than seen is stored;
// with outcome, until a call has an outcome or is held; otherwise until its attempt is no
// longer running for any reason.
type watchKey struct {
	id      ID
	outcome bool
	change  bool
	seen    store.Revision
}

// reached reports whether rec is the awaited state. lease is the time to judge its lease by.
func (k *watchKey) reached(rec *Record, lease store.Instant) bool {
	if k.change {
		return rec.Revision != k.seen
	}
	return rec.State != Processing || rec.Held || !k.outcome && leaseOver(rec, lease)
}
