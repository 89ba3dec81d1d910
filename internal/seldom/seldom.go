// Package seldom keeps repeated events from filling a log.
package seldom

import (
	"sync"
	"time"
)

// Teller reports the first event of a kind at once, and counts the ones that follow: it reports
// them together, once in a while, until no more come. It remembers kinds only for that time, so
// there should be few of them. It may be used concurrently.
type Teller[T any] struct {
	every time.Duration
	tell  func(newest T, count int)

	mu   sync.Mutex
	open map[string]*repeats[T] // kinds reported less than every ago
}

type repeats[T any] struct {
	newest T
	count  int
}

// New returns a Teller that reports repeated events at most once in every, with the newest and
// their number.
func New[T any](every time.Duration, tell func(newest T, count int)) *Teller[T] {
	return &Teller[T]{every: every, tell: tell, open: map[string]*repeats[T]{}}
}

// First reports whether an event is the first of its kind for a while; then its caller reports
// it. Otherwise it's counted.
func (t *Teller[T]) First(kind string, event T) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r := t.open[kind]; r != nil {
		r.newest, r.count = event, r.count+1
		return false
	}
	t.open[kind] = &repeats[T]{}
	time.AfterFunc(t.every, func() { t.close(kind) })
	return true
}

// Tell reports the first event of a kind at once, and counts the ones that follow.
func (t *Teller[T]) Tell(kind string, event T) {
	if t.First(kind, event) {
		t.tell(event, 1)
	}
}

// close reports what was counted, and forgets a kind without new events.
func (t *Teller[T]) close(kind string) {
	t.mu.Lock()
	r := *t.open[kind]
	if r.count == 0 {
		delete(t.open, kind)
	} else {
		t.open[kind] = &repeats[T]{}
		time.AfterFunc(t.every, func() { t.close(kind) })
	}
	t.mu.Unlock()
	if r.count > 0 {
		t.tell(r.newest, r.count)
	}
}
