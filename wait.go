package semel

import (
	"context"
	"errors"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"
)

// Bounds of what a duplicate is told about when to come back.
const (
	minRetryAfter = 50 * time.Millisecond
	minHeldRetry  = time.Second
	minPoll       = 20 * time.Millisecond
	maxPoll       = time.Second
)

// Await returns the record of an identity once its newest attempt has ended or is
// held, or as it is when the wait, which Operation.MaxWait bounds, is over. An
// attempt whose lease has ended is waited for too: policy settles it. It returns
// [ErrNotFound] if there is no record, or it is purged meanwhile, and the error of
// ctx if that ends first. When too many wait already it does not wait; see
// Options.MaxWaiters.
func (e *Engine) Await(ctx context.Context, id ID, wait time.Duration) (Record, error) {
	rec, err := e.Lookup(ctx, id)
	if err != nil || rec.State != Processing || rec.Held != "" {
		return rec, err
	}
	wait = min(wait, e.policyOf(id.Operation).MaxWait)
	if wait <= 0 {
		return rec, nil
	}
	last, err := e.await(ctx, &rec, wait, true)
	switch {
	case err != nil:
		return Record{}, err
	case last == nil: // as it is: a renewal or an effect may have changed it
		return e.Lookup(ctx, id)
	case last.State == absent:
		return Record{}, ErrNotFound
	}
	return *last, nil
}

// await blocks until the attempt in cur is no longer running or the wait is over.
// It returns what is stored then, which is the zero Record if it is gone, or nil
// if nothing changed in time. Outcomes of this engine wake it at once; those of
// others by the store's notice, where it gives one, or by polling. An attempt
// whose lease has ended, or that another has followed, is no longer running,
// unless it is the outcome of the call that is waited for.
func (e *Engine) await(ctx context.Context, cur *Record, wait time.Duration, outcome bool) (*Record, error) {
	woken, leave, ok := e.waiters.join(cur.ID)
	if !ok {
		return nil, nil
	}
	defer leave()
	var notice <-chan struct{}
	poll := minPoll
	if ws, ok := e.store.(WatchStore); ok {
		ch, stop := ws.Watch(ctx, cur.ID)
		defer stop()
		// The notice is a hint that may be lost on the way, so polling goes
		// on, rarely.
		notice, poll = ch, maxPoll
	}
	end := time.NewTimer(wait)
	defer end.Stop()
	for {
		// Look first: the change may have come before the waiter joined.
		rec, err := e.store.Get(ctx, cur.ID)
		if errors.Is(err, ErrNotFound) {
			return &none, nil
		}
		if err != nil {
			return nil, e.storeError("get", cur.ID, err)
		}
		now, err := e.now(ctx)
		if err != nil {
			return nil, err
		}
		over := rec.Fence != cur.Fence || rec.leaseOver(now)
		if rec.State != Processing || rec.Held != "" || over && !outcome {
			return &rec, nil
		}
		look := poll
		if !outcome {
			look = min(poll, max(rec.LeaseUntil.Sub(now), time.Millisecond))
		}
		pause := time.NewTimer(look)
		select {
		case <-woken:
			woken = nil // closed for good
		case <-notice:
		case <-pause.C:
			poll = min(poll*2, maxPoll)
		case <-end.C:
			pause.Stop()
			return nil, nil
		case <-ctx.Done():
			pause.Stop()
			return nil, ctx.Err()
		case <-e.done.Done():
			pause.Stop()
			return nil, nil
		}
		pause.Stop()
	}
}

// waiters are the deliveries of this engine that wait for an outcome.
type waiters struct {
	max    int64
	count  atomic.Int64
	seed   maphash.Seed
	shards [32]waitShard
}

type waitShard struct {
	mu sync.Mutex
	m  map[ID]*waitGroup
}

// waitGroup is shared by all that wait for one record.
type waitGroup struct {
	members int
	changed chan struct{}
}

func (w *waiters) init(limit int) {
	w.max = int64(limit)
	w.seed = maphash.MakeSeed()
}

func (w *waiters) shard(id ID) *waitShard {
	return &w.shards[maphash.Comparable(w.seed, id)%uint64(len(w.shards))]
}

// join adds a waiter. It reports false when there are too many. The channel is
// closed at the next wake; leave must be called in any case.
func (w *waiters) join(id ID) (woken <-chan struct{}, leave func(), ok bool) {
	if w.count.Add(1) > w.max {
		w.count.Add(-1)
		return nil, nil, false
	}
	s := w.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.m[id]
	if g == nil {
		if s.m == nil {
			s.m = map[ID]*waitGroup{}
		}
		g = &waitGroup{changed: make(chan struct{})}
		s.m[id] = g
	}
	g.members++
	return g.changed, func() {
		w.count.Add(-1)
		s.mu.Lock()
		defer s.mu.Unlock()
		if g.members--; g.members == 0 && s.m[id] == g {
			delete(s.m, id)
		}
	}, true
}

// wake tells all that wait for the record to look again.
func (w *waiters) wake(id ID) {
	if w.count.Load() == 0 {
		return
	}
	s := w.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if g := s.m[id]; g != nil {
		close(g.changed)
		delete(s.m, id)
	}
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

// retryAfter tells a duplicate when the outcome is likely: what is left of a
// usual execution that has run for age. Where nothing is known yet, or the
// execution takes longer than usual, the pause grows with its age. It never
// exceeds the lease that is left.
func (l *latency) retryAfter(age, lease time.Duration) time.Duration {
	usual := time.Duration(l.nanos.Load())
	left := usual - age
	if left < minRetryAfter {
		left = max(age/2, minRetryAfter)
	}
	return max(min(left, lease), minRetryAfter)
}
