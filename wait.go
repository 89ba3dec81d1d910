package semel

import (
	"context"
	"errors"
	"hash/maphash"
	"sync"
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
// held, or its current state when the wait, bounded by Operation.MaxWait, is over. It goes on
// waiting when the lease has ended, because the policy will settle the attempt. It returns
// [ErrNotFound] if there is no record, or it is purged meanwhile, and the error of ctx if that
// ends first. If too many wait already it doesn't wait; see Options.MaxWaiters.
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

// watch reads a record for all deliveries of this engine that wait for the same thing, until
// it happens or they have all gone: a large result is read once for all of them. It learns of
// this engine's outcomes at once, and of others' by the store's notices, if it has them, or by
// polling.
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

// waiters are the deliveries of this engine that wait for an outcome.
type waiters struct {
	seats[string] // by tenant

	mu      sync.Mutex
	watches map[watchKey]*watch

	seed   maphash.Seed
	shards [32]wakeShard
}

// seats bound how many deliveries wait at one time.
type seats[K comparable] struct {
	max   int
	count atomic.Int64 // all of them

	mu sync.Mutex
	of map[K]int // how many of each wait
}

// admit counts a waiter in. A tenant, or a network, may have only as many waiters as there
// are free seats, so that others can always wait too; see Options.MaxWaiters.
func (s *seats[K]) admit(of K) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of[of] >= s.max-int(s.count.Load()) {
		return false
	}
	if s.of == nil {
		s.of = map[K]int{}
	}
	s.of[of]++
	s.count.Add(1)
	return true
}

// dismiss counts a waiter out.
func (s *seats[K]) dismiss(of K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count.Add(-1)
	if s.of[of]--; s.of[of] == 0 {
		delete(s.of, of)
	}
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

// watch is shared by all deliveries that wait for the same watchKey.
type watch struct {
	members int
	stop    func()
	looks   int // how many have begun

	// over is closed at the end, after which looks, rec and err never change.
	over chan struct{}
	rec  *Record
	err  error
}

type wakeShard struct {
	mu sync.Mutex
	m  map[ID]*wakeGroup
}

// wakeGroup is shared by all listeners for one record.
type wakeGroup struct {
	members int
	woken   chan struct{}
}

func (w *waiters) init(limit int) {
	w.max = limit
	w.watches = map[watchKey]*watch{}
	w.seed = maphash.MakeSeed()
}

// share adds a waiter to a watch. The first waiter starts the watch, and the last that
// leaves stops it by the function that start returned. before is how many looks of the
// watch have begun before.
func (w *waiters) share(key watchKey, start func(*watch) (stop func())) (shared *watch, before int, leave func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	shared = w.watches[key]
	if shared == nil {
		shared = &watch{over: make(chan struct{})}
		shared.stop = start(shared)
		w.watches[key] = shared
	}
	shared.members++
	return shared, shared.looks, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if shared.members--; shared.members == 0 {
			shared.stop()
			w.forget(key, shared)
		}
	}
}

// begin counts a look.
func (w *waiters) begin(shared *watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	shared.looks++
}

// finish gives the result of a watch to all that share it. Later waiters share another.
func (w *waiters) finish(key watchKey, shared *watch, rec *Record, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	shared.rec, shared.err = rec, err
	close(shared.over)
	w.forget(key, shared)
}

func (w *waiters) forget(key watchKey, shared *watch) {
	if w.watches[key] == shared {
		delete(w.watches, key)
	}
}

// join adds a waiter that reads the record itself. It reports false if there are too
// many. The channel is closed at the next wake; leave must always be called.
func (w *waiters) join(id ID) (woken <-chan struct{}, leave func(), ok bool) {
	if !w.admit(id.Tenant) {
		return nil, nil, false
	}
	woken, unlisten := w.listen(id)
	return woken, func() {
		unlisten()
		w.dismiss(id.Tenant)
	}, true
}

func (w *waiters) shard(id ID) *wakeShard {
	return &w.shards[maphash.Comparable(w.seed, id)%uint64(len(w.shards))]
}

// listen returns a channel that is closed at the next wake. Call unlisten when you no
// longer listen.
func (w *waiters) listen(id ID) (woken <-chan struct{}, unlisten func()) {
	s := w.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.m[id]
	if g == nil {
		if s.m == nil {
			s.m = map[ID]*wakeGroup{}
		}
		g = &wakeGroup{woken: make(chan struct{})}
		s.m[id] = g
	}
	g.members++
	return g.woken, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if g.members--; g.members == 0 && s.m[id] == g {
			delete(s.m, id)
		}
	}
}

// wake closes the channels of all listeners for the record.
func (w *waiters) wake(id ID) {
	if w.count.Load() == 0 {
		return
	}
	s := w.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if g := s.m[id]; g != nil {
		close(g.woken)
		delete(s.m, id)
	}
}
