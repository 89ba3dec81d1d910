package offsetclock

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/semelhq/semel/internal/bootclock"
	"github.com/semelhq/semel/store"
)

// Period is how often the servers' clock is read while somebody asks for the time.
const Period = 3 * time.Second

// Clock is a store's time, which follows the clock of one or more servers, or of this machine.
// All processes on the store have the same time, because they agree on a [Note].
//
// Set the exported fields before you use it. Any number of goroutines may use it.
type Clock struct {
	// Machine reads the clocks of this machine, see [Machine].
	Machine func() Moment
	// Boot reads its boot clock, see [bootclock.Now]. Nil: it has none, and after it has slept
	// the time follows as after a leap.
	Boot func() bootclock.Reading
	// Bound is how far servers' clocks may differ while they are synchronised.
	Bound time.Duration
	// Ask reads the servers' clock.
	Ask func(ctx context.Context) (Reading, error)
	// Noted reads the note, or nothing if there is none. Note replaces it with next if it still
	// equals was. A crash before that, an error, or another process's note changes nothing: the
	// next reading compares and notes again, and this process continues as usual.
	Noted func(ctx context.Context) (string, error)
	Note  func(ctx context.Context, was, next string) error
	// Beside runs f, perhaps in the background, or returns why it can't.
	Beside func(f func(ctx context.Context)) error

	shift atomic.Int64 // see Advance
	state atomic.Pointer[reckoning]
	given atomic.Int64 // the latest time returned by Now, without the shift
	asked atomic.Int64 // when the servers were last asked, by the monotonic clock

	reads sync.Mutex // held by Read and Accept
	mu    sync.Mutex
	going *Attempt // the reading in progress
}

// Attempt is one attempt to read the servers' clock. Several callers may wait for it.
type Attempt struct {
	Over chan struct{} // closed when it has ended
	Err  error         // set by then
}

// Now returns the time, which never goes back. It rarely takes a round trip, because the servers'
// clock is read in the background. It returns an error if the servers' clock can't be read and the
// last reading is older than MaxAge, or from before this machine was suspended or its clock set.
func (c *Clock) Now(ctx context.Context) (store.Instant, error) {
	var err error
	for reading := 0; ; reading++ { // a reading in progress may be too old, so wait for another
		k, m := c.state.Load(), c.Machine()
		since := m.Mono - time.Duration(c.asked.Load())
		switch {
		case k != nil && k.holds(m, c.Bound):
			if since > Period {
				_, _ = c.Soon() // if this fails, the next call retries
			}
			return c.give(k.now(m)), nil
		case reading == 2:
			return 0, err
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

// Soon starts a reading of the servers' clock, or returns the one in progress.
func (c *Clock) Soon() (*Attempt, error) {
	c.mu.Lock()
	if a := c.going; a != nil {
		c.mu.Unlock()
		return a, nil
	}
	a := &Attempt{Over: make(chan struct{})}
	c.going = a
	c.mu.Unlock()
	end := func(err error) {
		a.Err = err
		c.mu.Lock()
		c.going = nil
		c.mu.Unlock()
		close(a.Over)
	}
	err := c.Beside(func(ctx context.Context) { end(c.Read(ctx)) })
	if err != nil {
		end(err)
	}
	return a, err
}

// Read reads the servers' clock. Without an answer the clock continues as before, for up to
// MaxAge.
func (c *Clock) Read(ctx context.Context) error {
	c.reads.Lock()
	defer c.reads.Unlock()
	_, err := c.read(ctx)
	return err
}

// read is Read for callers that hold the lock. It returns the note that it wrote, or would have
// written.
func (c *Clock) read(ctx context.Context) (note string, err error) {
	defer func() { c.asked.Store(int64(c.Machine().Mono)) }()
	k := c.state.Load()
	text, unread := c.Noted(ctx)
	was, err := ParseNote(text)
	if unread = errors.Join(unread, err); unread != nil {
		if k == nil {
			return "", unread // nobody knows how late it is
		}
		was = k.note // the time continues as before
	}
	given := store.Instant(c.given.Load())
	r, err := c.Ask(ctx)
	if c.Boot != nil {
		r.Boot = c.Boot()
	}
	if err == nil && (r.Came.skew()-r.Asked.skew()).Abs() > c.Bound {
		err = ErrSuspended
	}
	if err != nil {
		return "", err
	}
	next := k.next(was, r, given, c.Bound)
	to := next.toNote(was, r.Boot)
	next.note = to
	c.state.Store(next)
	if to != was && unread == nil {
		_ = c.Note(ctx, text, to.String())
	}
	return to.String(), nil
}

// Accept makes the time follow a leap of the servers' clock soon, in all processes: after
// AcceptAfter, when all have read the note, or at once if there are no others.
func (c *Clock) Accept(ctx context.Context, alone bool) (store.ClockState, error) {
	c.reads.Lock()
	defer c.reads.Unlock()
	for range 3 { // others may note something meanwhile
		if _, err := c.read(ctx); err != nil {
			return store.ClockState{}, err
		}
		text, err := c.Noted(ctx)
		if err != nil {
			return store.ClockState{}, err
		}
		n, err := ParseNote(text)
		if err != nil {
			return store.ClockState{}, err
		}
		k := c.state.Load()
		now := k.now(c.Machine())
		until := now
		if !alone {
			until = now.Add(AcceptAfter)
		}
		if n.Off >= 0 || n.Until <= until {
			return c.State(now.Add(c.Advanced())), nil
		}
		n.Until = until
		if err := c.Note(ctx, text, n.String()); err != nil {
			return store.ClockState{}, err
		}
	}
	return store.ClockState{}, errors.New("other processes note the store's time all the time: try again")
}

// State returns the state of the clock at a time that Now has returned.
func (c *Clock) State(now store.Instant) store.ClockState {
	k := c.state.Load()
	if k == nil {
		return store.ClockState{}
	}
	shift := c.Advanced()
	st := k.note.state(now.Add(-shift))
	if shift != 0 {
		for _, at := range []*store.Instant{&st.Since, &st.Until, &st.Leap.At} {
			if *at != 0 {
				*at = at.Add(shift)
			}
		}
	}
	return st
}

// Servers returns the servers' clock at a time of the store.
func (c *Clock) Servers(at store.Instant) store.Instant {
	at = at.Add(-c.Advanced())
	if k := c.state.Load(); k != nil {
		if given := store.Instant(c.given.Load()); !k.note.follows(given) {
			return at.Add(-k.note.Off)
		}
	}
	return at
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

// Advanced returns how far Advance has moved it.
func (c *Clock) Advanced() time.Duration { return time.Duration(c.shift.Load()) }

// Forget makes the clock start afresh, for tests.
func (c *Clock) Forget() {
	c.state.Store(nil)
	c.given.Store(0)
}
