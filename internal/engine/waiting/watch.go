package waiting

import "sync"

// Watches are the watches in progress. All waiters for the same thing share one.
type Watches[K comparable, V any] struct {
	mu      sync.Mutex
	watches map[K]*Watch[V]
}

// Watch is shared by all waiters for the same thing.
type Watch[V any] struct {
	members int
	stop    func()
	Looks   int // how many looks have begun

	// Over is closed at the end, after which Looks, Value and Err never change.
	Over  chan struct{}
	Value V
	Err   error
}

// Share adds a waiter to a watch. The first waiter starts the watch, and the last one to leave
// stops it by the function that start returned. before is how many looks of the watch had begun
// earlier.
func (w *Watches[K, V]) Share(key K, start func(*Watch[V]) (stop func())) (shared *Watch[V], before int, leave func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	shared = w.watches[key]
	if shared == nil {
		shared = &Watch[V]{Over: make(chan struct{})}
		shared.stop = start(shared)
		if w.watches == nil {
			w.watches = map[K]*Watch[V]{}
		}
		w.watches[key] = shared
	}
	shared.members++
	return shared, shared.Looks, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if shared.members--; shared.members == 0 {
			shared.stop()
			w.forget(key, shared)
		}
	}
}

// Begin counts a look.
func (w *Watches[K, V]) Begin(shared *Watch[V]) {
	w.mu.Lock()
	defer w.mu.Unlock()
	shared.Looks++
}

// Finish gives the result of a watch to all waiters that share it. Later waiters share another watch.
func (w *Watches[K, V]) Finish(key K, shared *Watch[V], v V, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	shared.Value, shared.Err = v, err
	close(shared.Over)
	w.forget(key, shared)
}

func (w *Watches[K, V]) forget(key K, shared *Watch[V]) {
	if w.watches[key] == shared {
		delete(w.watches, key)
	}
}
