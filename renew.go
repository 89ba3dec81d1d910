package semel

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/semelhq/semel/store"
)

// Renew extends the lease to its full time from now. The lease renews itself at a third
// of its time; call Renew before your handler blocks the whole process. [ErrLeaseLost]
// means that the right to execute is gone.
func (a *Attempt) Renew(ctx context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.renew(ctx, a.op.engine.retrying())
}

// tryRenew is Renew without waiting for another write of the attempt, and without
// retrying if the store fails.
func (a *Attempt) tryRenew(ctx context.Context) error {
	if !a.mu.TryLock() {
		return errBusy
	}
	defer a.mu.Unlock()
	return a.renew(ctx, a.op.engine.once())
}

var errBusy = errors.New("semel: another write of the attempt is under way")

// renew is Renew for those who hold a.mu.
func (a *Attempt) renew(ctx context.Context, by sending) error {
	if a.ended != evNone {
		return &Error{Code: CodeAlreadyEnded, Message: "the attempt has ended"}
	}
	if err := a.handler.lost(); err != nil {
		return err
	}
	var since time.Duration
	// A crash before or after this write leaves a lease that ends by itself;
	// it only ends later in the second case.
	err := a.writeBy(ctx, by, store.ChangePostponed, func(cur *Record, at reading) (*Record, error) {
		if cur.Held {
			return nil, &Error{Code: CodeLeaseLost, Message: "the record was declared held"}
		}
		if a.fromBackup(cur, at) {
			return nil, errRestored
		}
		since = at.elapsed
		return extend(cur, evRenew, at.now)
	})
	if errors.Is(err, ErrLeaseLost) {
		a.lose(err)
	}
	if err == nil {
		a.leased(since)
	}
	return err
}

// renewOrStop renews the lease, which began at the local time since. While the store
// doesn't answer it tries again, and shortly before the lease may be over it tells the
// handler to stop, because there may be another attempt afterwards.
func (a *Attempt) renewOrStop(since time.Duration) {
	// The lease began after since by the store's clock, so it is not over
	// before this.
	left := since + handlerTime(a.op.Lease) - a.op.engine.elapsed()
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
		select {
		case <-time.After(max(a.op.Lease/30, time.Millisecond)):
		case <-a.Context().Done():
			return
		case <-ctx.Done():
			return // the guard tells the handler
		}
	}
}

// leases are the attempts of one operation whose leases must be renewed, in the order in
// which their leases began. All have the same period, so this is also the order in which
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

// add puts the attempt in its place. That is nearly always the end of the list, but a
// claim may have taken longer than a later one.
func (l *leases) add(a *Attempt, since time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unlink(a)
	after := l.last
	for after != nil && after.lease.since > since {
		after = after.lease.prev
	}
	a.lease = leaseEntry{since: since, prev: after}
	if after == nil {
		a.lease.next, l.first = l.first, a
	} else {
		a.lease.next, after.lease.next = after.lease.next, a
	}
	if a.lease.next == nil {
		l.last = a
	} else {
		a.lease.next.lease.prev = a
	}
	if !l.armed || l.first == a {
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

// fire takes out all attempts that are due and renews each in its own goroutine, since a
// renewal may wait for the store.
func (l *leases) fire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.engine.elapsed()
	for a := l.first; a != nil && a.lease.since+l.period <= now; a = l.first {
		since := a.lease.since
		l.unlink(a)
		go a.renewOrStop(since)
	}
	if l.armed = l.first != nil; l.armed {
		l.arm()
	}
}
