// Package overdue notices work that takes too long. One timer serves all of it, and almost never
// runs: starting one for each call would wake a thread up each time, which takes as long as a
// statement's answer.
package overdue

import (
	"context"
	"sync"
	"time"
)

// Watch calls functions for work that takes too long. The zero value is ready. It may be used
// concurrently.
type Watch struct {
	mu    sync.Mutex
	work  map[*Work]bool
	timer *time.Timer
	next  time.Time // when the timer runs; zero: it doesn't
}

// Work is something that shouldn't take too long.
type Work struct {
	watch *Watch
	end   time.Time
	late  func()
}

// After has late called after d, in a goroutine of its own, unless the work is done before.
func (w *Watch) After(d time.Duration, late func()) *Work {
	k := &Work{w, time.Now().Add(d), late}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.work == nil {
		w.work = map[*Work]bool{}
	}
	w.work[k] = true
	w.wakeAt(k.end)
	return k
}

// Done ends the work. Its function may already run.
func (k *Work) Done() {
	k.watch.mu.Lock()
	defer k.watch.mu.Unlock()
	delete(k.watch.work, k)
}

// WithTimeout is [context.WithTimeout], but for the error, which is that of a cancelled context,
// and the deadline, which ctx doesn't tell.
func (w *Watch) WithTimeout(ctx context.Context, d time.Duration) (limited context.Context, cancel func()) {
	limited, stop := context.WithCancel(ctx)
	k := w.After(d, stop)
	return limited, func() {
		k.Done()
		stop()
	}
}

// wakeAt has the timer run by then. The caller holds w.mu.
func (w *Watch) wakeAt(at time.Time) {
	switch {
	case !w.next.IsZero() && !at.Before(w.next):
		return
	case w.timer == nil:
		w.timer = time.AfterFunc(time.Until(at), w.look)
	default:
		w.timer.Reset(time.Until(at))
	}
	w.next = at
}

// look runs when the first work may be overdue.
func (w *Watch) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.next = time.Time{}
	now := time.Now()
	for k := range w.work {
		if now.Before(k.end) {
			w.wakeAt(k.end)
			continue
		}
		delete(w.work, k)
		go k.late()
	}
}
