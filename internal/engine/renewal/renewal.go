// Package renewal schedules the renewal of leases: all leases of one length by one timer.
package renewal

import (
	"sync"
	"time"
)

// Leases are leases to renew, in the order in which they began. All have the same period, so
// this is also the order in which they are due, and one timer serves them all; most end before
// it fires.
type Leases[T any] struct {
	// Elapsed is the clock, and Period is how long after its beginning a lease is due.
	Elapsed func() time.Duration
	Period  time.Duration
	// Renew is called for each due lease, in its own goroutine, since a renewal may wait for
	// the store. The lease has left the list by then.
	Renew func(of T, since time.Duration)

	mu          sync.Mutex
	first, last *Lease[T]
	timer       *time.Timer
	armed       bool
}

// Lease is a lease's place in the list. It must not be copied.
type Lease[T any] struct {
	of         T
	since      time.Duration // when the lease was last asked for
	next, prev *Lease[T]
}

// Add puts a lease in its place. That is nearly always the end of the list, but a claim may
// have taken longer than a later one.
func (l *Leases[T]) Add(x *Lease[T], of T, since time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unlink(x)
	after := l.last
	for after != nil && after.since > since {
		after = after.prev
	}
	*x = Lease[T]{of: of, since: since, prev: after}
	if after == nil {
		x.next, l.first = l.first, x
	} else {
		x.next, after.next = after.next, x
	}
	if x.next == nil {
		l.last = x
	} else {
		x.next.prev = x
	}
	if !l.armed || l.first == x {
		l.arm()
	}
}

// Remove removes a lease from the list, if it is there.
func (l *Leases[T]) Remove(x *Lease[T]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unlink(x)
}

func (l *Leases[T]) unlink(x *Lease[T]) {
	if x.prev == nil && x.next == nil && l.first != x {
		return // it isn't in the list
	}
	if x.prev == nil {
		l.first = x.next
	} else {
		x.prev.next = x.next
	}
	if x.next == nil {
		l.last = x.prev
	} else {
		x.next.prev = x.prev
	}
	*x = Lease[T]{}
}

// arm sets the timer for the first lease in the list.
func (l *Leases[T]) arm() {
	l.armed = true
	wait := max(l.first.since+l.Period-l.Elapsed(), 0)
	if l.timer == nil {
		l.timer = time.AfterFunc(wait, l.fire)
	} else {
		l.timer.Reset(wait)
	}
}

// fire removes all due leases and renews them.
func (l *Leases[T]) fire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.Elapsed()
	for x := l.first; x != nil && x.since+l.Period <= now; x = l.first {
		of, since := x.of, x.since
		l.unlink(x)
		go l.Renew(of, since)
	}
	if l.armed = l.first != nil; l.armed {
		l.arm()
	}
}
