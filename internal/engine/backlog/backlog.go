// Package backlog keeps work that one goroutine retries until it is done.
package backlog

import "sync"

// Backlog is the work to retry. The zero Backlog is empty.
type Backlog[T any] struct {
	mu      sync.Mutex
	queue   []T
	taken   int // how many the goroutine has; they count as queued
	running bool
}

// Add queues work if the queue has room for one more of most. first means that the caller must
// start the goroutine.
func (b *Backlog[T]) Add(x T, most int) (added, first bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.queue)+b.taken >= most {
		return false, false
	}
	b.queue = append(b.queue, x)
	first = !b.running
	b.running = true
	return true, first
}

// Take empties the queue. If it was empty, the goroutine must end.
func (b *Backlog[T]) Take() []T {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.queue
	b.queue, b.taken, b.running = nil, len(all), len(all) > 0
	return all
}

// PutBack returns work to the queue to be retried.
func (b *Backlog[T]) PutBack(left []T) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.queue, b.taken = append(left, b.queue...), 0
}
