package semel

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Renew extends the lease to its full time from now. It happens by itself at a
// third of the lease; a handler that is about to block the whole process may
// call it before. [ErrLeaseLost] means that the right to execute is gone.
func (a *Attempt) Renew(ctx context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.renew(ctx, a.op.engine.apply)
}

// tryRenew is Renew without waiting: neither for a write of the attempt that is
// under way, nor for a store that does not answer.
func (a *Attempt) tryRenew(ctx context.Context) error {
	if !a.mu.TryLock() {
		return errBusy
	}
	defer a.mu.Unlock()
	return a.renew(ctx, func(ctx context.Context, v version) (*Record, bool, error) {
		return a.op.engine.applyOnce(ctx, &v, 1)
	})
}

var errBusy = errors.New("semel: another write of the attempt is under way")

// renew is Renew for those who hold a.mu.
func (a *Attempt) renew(ctx context.Context, apply applyFunc) error {
	if a.ended != evNone {
		return &Error{Code: CodeAlreadyEnded, Message: "the attempt has ended"}
	}
	if err := a.handler.lost(); err != nil {
		return err
	}
	since := a.op.engine.elapsed()
	now, err := a.op.engine.now(ctx)
	if err != nil {
		return err
	}
	// A crash before or after this write leaves a lease that ends by itself;
	// it only ends later in the second case.
	err = a.writeBy(ctx, apply, ChangePostponed, func(cur *Record) (*Record, error) {
		if cur.Held != "" {
			return nil, &Error{Code: CodeLeaseLost, Message: "the record was declared held"}
		}
		next, err := successor(cur, evRenew, now)
		if err != nil {
			return nil, err
		}
		next.LeaseUntil = now.Add(a.op.Lease)
		next.NextAt = next.LeaseUntil
		return next, nil
	})
	if errors.Is(err, ErrLeaseLost) {
		a.lose(err)
	}
	if err == nil && !a.detached {
		a.op.leases.add(a, since)
	}
	return err
}

// keep renews the lease, which began at the local time since. While the store
// does not answer it tries again, and shortly before the lease may be over it
// tells the handler to stop: from then on somebody else may be given the right.
func (a *Attempt) keep(since time.Duration) {
	// The lease began after since by the store's clock, so it is not over
	// before this. A tenth is left for the handler to notice.
	left := since + a.op.Lease - a.op.Lease/10 - a.op.engine.elapsed()
	guard := time.AfterFunc(left, func() {
		a.lose(&Error{Code: CodeLeaseLost, Message: "the lease could not be renewed in time"})
	})
	defer guard.Stop()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(a.parent), left)
	defer cancel()
	for {
		err := a.tryRenew(ctx)
		if err == nil || a.handler.isStopped() {
			return
		}
		timer := time.NewTimer(max(a.op.Lease/30, time.Millisecond))
		select {
		case <-timer.C:
		case <-a.Context().Done():
			timer.Stop()
			return
		case <-ctx.Done():
			timer.Stop()
			return // the guard tells the handler
		}
	}
}

// leases are the attempts of one operation whose lease is to be renewed. As all
// have the same period, the order in which they were added is the order in which
// they are due, and one timer serves them all; most attempts end before it fires.
type leases struct {
	engine *Engine
	period time.Duration

	mu          sync.Mutex
	first, last *Attempt
	timer       *time.Timer
	armed       bool
}

// leaseEntry is an attempt's place in the list.
type leaseEntry struct {
	since      time.Duration // local time at which the lease was last asked for
	next, prev *Attempt
}

// add puts the attempt at the end.
func (l *leases) add(a *Attempt, since time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unlink(a)
	a.lease = leaseEntry{since: since, prev: l.last}
	if l.last == nil {
		l.first = a
	} else {
		l.last.lease.next = a
	}
	l.last = a
	if !l.armed {
		l.arm()
	}
}

// remove takes the attempt out, if it is in.
func (l *leases) remove(a *Attempt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unlink(a)
}

func (l *leases) unlink(a *Attempt) {
	en := &a.lease
	if en.prev == nil && en.next == nil && l.first != a {
		return // it is not in
	}
	if en.prev == nil {
		l.first = en.next
	} else {
		en.prev.lease.next = en.next
	}
	if en.next == nil {
		l.last = en.prev
	} else {
		en.next.lease.prev = en.prev
	}
	*en = leaseEntry{}
}

// arm sets the timer for the first in the list.
func (l *leases) arm() {
	l.armed = true
	wait := max(l.first.lease.since+l.period-l.engine.elapsed(), 0)
	if l.timer == nil {
		l.timer = time.AfterFunc(wait, l.fire)
	} else {
		l.timer.Reset(wait)
	}
}

// fire takes out all that are due and renews each in a goroutine of its own,
// since a renewal may wait for the store.
func (l *leases) fire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.engine.elapsed()
	for a := l.first; a != nil && a.lease.since+l.period <= now; a = l.first {
		since := a.lease.since
		l.unlink(a)
		go a.keep(since)
	}
	if l.armed = l.first != nil; l.armed {
		l.arm()
	}
}
