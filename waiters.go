package semel

import (
	"hash/maphash"
	"sync"
	"sync/atomic"

	"github.com/semelhq/semel/store"
)

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

// reached reports whether rec, is what is waited for. lease is the time by
// which its lease is judged.
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
