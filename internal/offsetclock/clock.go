package offsetclock

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/semelhq/semel/store"
)

const (
	// Period is how often the servers' clock is read while somebody asks for the time.
	Period = 3 * time.Second
	// AskAgain is how often it is read while the clock has stopped.
	AskAgain = time.Second
)

// Clock is the clock of one or several servers. With Noted and Note, a clock whose last two
// readings agree stores its time in the servers, and a clock that finds the servers behind the
// stored time stops. So no process goes on before the servers have passed a time that any
// process believed, which fences may be made of, even if all processes were restarted.
//
// Set the exported fields before you use it. Any number of goroutines may use it.
type Clock struct {
	// Machine reads the clocks of this machine, see [Machine].
	Machine func() Moment
	// Bound is how far the clocks of servers may differ if they are kept in step.
	Bound time.Duration
	// Ask reads the servers' clock.
	Ask func(ctx context.Context) (Reading, error)
	// Noted reads the latest time that Note has stored, or zero. Both are nil if the servers
	// don't store it.
	Noted func(ctx context.Context) (store.Instant, error)
	// Note stores the time in the servers. If a crash or an error prevents that, the next
	// reading stores it; this process doesn't depend on it.
	Note func(ctx context.Context, at store.Instant)
	// Beside runs f in the background, or returns why it can't.
	Beside func(f func(ctx context.Context)) error

	shift atomic.Int64 // see Advance
	state atomic.Pointer[reckoning]
	given atomic.Int64 // the latest time that Now has returned, without the shift
	asked atomic.Int64 // when the servers were last asked, by the monotonic clock

	mu    sync.Mutex
	going *Attempt // the reading that is under way
}

// Attempt is an attempt to read the servers' clock. Several callers may wait for it.
type Attempt struct {
	Over chan struct{} // closed when it has ended
	Err  error         // set by then
}

// Now returns the time, which never goes back. It rarely takes a round trip, because the
// servers' clock is read in the background. It returns an error if the time is in doubt and
// the servers' clock can't be read, or can't be relied on.
func (c *Clock) Now(ctx context.Context) (store.Instant, error) {
	var err error
	for reading := 0; ; reading++ { // a reading under way may be too old, so wait for another
		k, m := c.state.Load(), c.Machine()
		since := m.Mono - time.Duration(c.asked.Load())
		switch {
		case k != nil && k.holds(m, c.Bound):
			if since > Period {
				_, _ = c.Soon() // if this fails, the next call tries
			}
			return c.give(k.now(m)), nil
		case reading == 2:
			return 0, err
		case k != nil && k.stopped != nil && since < AskAgain:
			return 0, k.stopped
		}
		going, failed := c.Soon()
		if failed != nil {
			return 0, failed
		}
		select {
		case <-going.Over:
			err = going.Err
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// Soon begins to read the servers' clock in the background, or returns the reading that is
// under way.
func (c *Clock) Soon() (*Attempt, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.going != nil {
		return c.going, nil
	}
	a := &Attempt{Over: make(chan struct{})}
	err := c.Beside(func(ctx context.Context) {
		a.Err = c.Read(ctx)
		c.mu.Lock()
		c.going = nil
		c.mu.Unlock()
		close(a.Over)
	})
	if err == nil {
		c.going = a
	}
	return a, err
}

// Read reads the servers' clock. Never call it concurrently. Without an answer the clock goes
// on as before, for up to MaxAge.
func (c *Clock) Read(ctx context.Context) error {
	defer func() { c.asked.Store(int64(c.Machine().Mono)) }()
	var noted store.Instant
	if c.Noted != nil {
		var err error
		if noted, err = c.Noted(ctx); err != nil {
			return err
		}
	}
	high := max(noted, store.Instant(c.given.Load()))
	r, err := c.Ask(ctx)
	if err == nil && (r.Came.skew()-r.Asked.skew()).Abs() > c.Bound {
		err = ErrSuspended
	}
	if err != nil {
		return err
	}
	k := c.state.Load().next(r, high, c.Bound)
	c.state.Store(k)
	if c.Note != nil && k.stopped == nil && k.agreed && k.at > noted {
		c.Note(ctx, k.at)
	}
	return k.stopped
}

// give returns a time that is no earlier than any returned before: when one reckoning
// replaces another, some callers still use the old one.
func (c *Clock) give(at store.Instant) store.Instant {
	for {
		last := c.given.Load()
		if int64(at) <= last {
			at = store.Instant(last)
			break
		}
		if c.given.CompareAndSwap(last, int64(at)) {
			break
		}
	}
	return at.Add(c.Advanced())
}

// Advance moves the clock forward, for tests.
func (c *Clock) Advance(d time.Duration) { c.shift.Add(int64(d)) }

// Advanced is how far Advance has moved it.
func (c *Clock) Advanced() time.Duration { return time.Duration(c.shift.Load()) }

// Forget makes the clock start afresh, for tests.
func (c *Clock) Forget() {
	c.state.Store(nil)
	c.given.Store(0)
}
