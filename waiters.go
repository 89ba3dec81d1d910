package semel

import (
	"hash/maphash"
	"sync"
	"sync/atomic"

	"github.com/semelhq/semel/store"
)

// waiters are the deliveries of this engine that wait for an outcome.
type waiters struct {
	max   int
	count atomic.Int64 // all of them; wake returns at once if it is zero

	mu      sync.Mutex
	tenants map[string]int // how many of each wait
	watches map[watchKey]*watch

	seed   maphash.Seed
	shards [32]wakeShard
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
	w.tenants = map[string]int{}
	w.watches = map[watchKey]*watch{}
	w.seed = maphash.MakeSeed()
}

// admit counts a waiter in. A tenant may have only as many waiters as there are free
// places, so that other tenants can always wait too; see Options.MaxWaiters.
func (w *waiters) admit(tenant string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.tenants[tenant] >= w.max-int(w.count.Load()) {
		return false
	}
	w.tenants[tenant]++
	w.count.Add(1)
	return true
}

// dismiss counts a waiter out.
func (w *waiters) dismiss(tenant string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count.Add(-1)
	if w.tenants[tenant]--; w.tenants[tenant] == 0 {
		delete(w.tenants, tenant)
	}
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
