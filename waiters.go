package semel

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
)

// waiters are the deliveries of this engine that wait for an outcome.
type waiters struct {
	max   int
	count atomic.Int64 // where nobody waits there is nobody to wake

	mu      sync.Mutex
	tenants map[string]int // how many of each wait
	watches map[watchKey]*watch

	seed   maphash.Seed
	shards [32]wakeShard
}

// watchKey says what is waited for: that a call has an outcome or is held, or else
// that its attempt is no longer running for whatever reason.
type watchKey struct {
	id      ID
	outcome bool
}

// watch is shared by all that wait for the same.
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

// wakeGroup is shared by all that listen for one record.
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

// admit counts a waiter in. A tenant may have as many as there are places left free,
// so that however many one has, others can wait too; see Options.MaxWaiters.
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

// share adds a waiter to those who share a watch. The first starts it, and the last
// who leaves calls the function that start returned. Of its looks, so many have begun
// before.
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

// finish gives what a watch has found to all that share it. Whoever comes later
// shares another.
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

// join adds a waiter that looks for itself. It reports false when there are too many.
// The channel is closed at the next wake; leave must be called in any case.
func (w *waiters) join(id ID) (woken <-chan struct{}, leave func(), ok bool) {
	if !w.admit(id.Tenant) {
		return nil, nil, false
	}
	woken, deaf := w.listen(id)
	return woken, func() {
		deaf()
		w.dismiss(id.Tenant)
	}, true
}

func (w *waiters) shard(id ID) *wakeShard {
	return &w.shards[maphash.Comparable(w.seed, id)%uint64(len(w.shards))]
}

// listen returns a channel that is closed at the next wake; deaf must be called when
// nobody listens any more.
func (w *waiters) listen(id ID) (woken <-chan struct{}, deaf func()) {
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

// wake tells all that listen for the record to look again.
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
