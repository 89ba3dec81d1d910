package semel

import (
	"context"
	"sync"
	"time"
)

// storeLimits ends the calls to a store that have taken too long. All have the same
// limit, so they are over in the order in which they began, and one timer does for all:
// nearly every call ends long before its limit, and a timer of its own would be most of
// what the limit costs.
type storeLimits struct {
	limit time.Duration

	mu          sync.Mutex
	first, last *storeCall
	timer       *time.Timer
	ticking     bool // the timer runs: it is not stopped when there is no call left
}

// add lets the limit of a call count.
func (l *storeLimits) add(c *storeCall) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.deadline = time.Now().Add(l.limit)
	if c.prev = l.last; c.prev != nil {
		c.prev.next = c
	} else {
		l.first = c
	}
	l.last = c
	switch {
	case l.timer == nil:
		l.timer = time.AfterFunc(l.limit, l.tick)
	case !l.ticking:
		l.timer.Reset(l.limit)
	}
	l.ticking = true
}

// remove takes out a call that is over, if it is still there.
func (l *storeLimits) remove(c *storeCall) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.prev != nil || l.first == c {
		l.unlink(c)
	}
}

func (l *storeLimits) unlink(c *storeCall) {
	if c.prev != nil {
		c.prev.next = c.next
	} else {
		l.first = c.next
	}
	if c.next != nil {
		c.next.prev = c.prev
	} else {
		l.last = c.prev
	}
	c.next, c.prev = nil, nil
}

// tick ends the calls whose limit is over, and waits for that of the next one.
func (l *storeLimits) tick() {
	for _, c := range l.late() {
		c.stop(context.DeadlineExceeded)
	}
}

func (l *storeLimits) late() (calls []*storeCall) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for c := l.first; c != nil && !now.Before(c.deadline); c = l.first {
		l.unlink(c)
		calls = append(calls, c)
	}
	if l.ticking = l.first != nil; l.ticking {
		l.timer.Reset(l.first.deadline.Sub(now))
	}
	return calls
}
