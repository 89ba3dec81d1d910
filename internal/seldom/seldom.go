// Package seldom keeps what happens again and again from filling a log.
package seldom

import (
	"sync"
	"time"
)

// Teller lets the first event of a kind be told at once, and counts those that follow: they are
// told together, once in a while, until none comes any more. It remembers the kinds of that
// while only, so these should be few. It is safe for concurrent use.
type Teller[T any] struct {
	every time.Duration
	tell  func(newest T, count int)

	mu   sync.Mutex
	open map[string]*repeats[T] // of kinds that were told less than every ago
}

type repeats[T any] struct {
	newest T
	count  int
}

// New tells of repeated events at most once in every, with the newest and how many they were.
func New[T any](every time.Duration, tell func(newest T, count int)) *Teller[T] {
	return &Teller[T]{every: every, tell: tell, open: map[string]*repeats[T]{}}
}

// First reports whether an event is the first of its kind for a while, which the caller tells.
// Otherwise it's counted.
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

// Tell tells of the first event of a kind at once, and counts those that follow.
func (t *Teller[T]) Tell(kind string, event T) {
	if t.First(kind, event) {
		t.tell(event, 1)
	}
}

// close tells of what was counted, and forgets a kind of which nothing came.
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
