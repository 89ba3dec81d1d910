// Package hub notifies waiting goroutines of this process when something changes.
package hub

import "sync"

// Hub has the channels of waiting goroutines, by what they wait for. Its zero value is ready.
// It may be used concurrently.
type Hub[K comparable] struct {
	mu   sync.Mutex
	keys map[K]map[chan struct{}]struct{}
}

// Watch returns a channel that receives once after each change of key, or once for
// several. Call stop when you are done.
func (h *Hub[K]) Watch(key K) (changed <-chan struct{}, stop func()) {
	ch := make(chan struct{}, 1)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.keys == nil {
		h.keys = map[K]map[chan struct{}]struct{}{}
	}
	if h.keys[key] == nil {
		h.keys[key] = map[chan struct{}]struct{}{}
	}
	h.keys[key][ch] = struct{}{}
	return ch, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.keys[key], ch)
		if len(h.keys[key]) == 0 {
			delete(h.keys, key)
		}
	}
}

// Len returns the number of watched keys.
func (h *Hub[K]) Len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.keys)
}

// Wake notifies everybody who watches key.
func (h *Hub[K]) Wake(key K) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.keys) > 0 { // usually nobody waits
		tell(h.keys[key])
	}
}

// WakeAll notifies everybody.
func (h *Hub[K]) WakeAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, channels := range h.keys {
		tell(channels)
	}
}

func tell(channels map[chan struct{}]struct{}) {
	for ch := range channels {
		select {
		case ch <- struct{}{}:
		default: // it already has a notice
		}
	}
}
