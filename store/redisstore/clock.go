package redisstore

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/semelhq/semel"
)

// The clock of the store is the servers', carried on by the monotonic clock of this
// process: [Store.Now] takes no round trip as a rule. Who judges leases by a clock that is
// wrong ends those of others, and fences must rise also for what was purged, so a clock
// that may be wrong gives no time at all. Decision 13 has the reasons and the limits.
//
//   - The servers' clock is read every syncEvery, and before the clock answers when the
//     last reading is older than maxAge, or when the wall clock of this machine has moved
//     against the monotonic one by more than clockBound: that one stands still while a
//     machine is suspended.
//   - A reading within clockBound of the clock is believed. If it is ahead, so is the
//     clock from then on. If it is behind, the clock loses a tenth of its speed until they
//     agree: it never goes back.
//   - One that is further behind, of this clock or of what another process has noted in the
//     store, means that a wrong time was believed before or is shown now. The clock stops
//     until the servers' has come as far.
//   - One that is further ahead must be confirmed by another, confirmAfter later at least.
//     Until then the clock stops.
//   - How far the clock has come is noted in the store, by whoever has had two readings that
//     agree.
const (
	syncEvery    = 10 * time.Second
	maxAge       = 5 * time.Minute // at 500 ppm, more than quartz is off by, it is 0.15 s wrong by then
	clockBound   = time.Second
	confirmAfter = 5 * time.Second
	// askAgain is how often a clock that has stopped is read.
	askAgain = time.Second
)

// moment is the time by both clocks of this machine.
type moment struct{ wall, mono time.Duration }

// skew is how far the wall clock is ahead of the other.
func (m moment) skew() time.Duration { return m.wall - m.mono }

// reading is what the servers' clock showed at some moment between two.
type reading struct {
	at          semel.Instant
	asked, came moment
}

// trip is for how long it was on its way: when it came, the servers' clock had gone on by
// at most that.
func (r *reading) trip() time.Duration { return r.came.mono - r.asked.mono }

// suspended reports whether the machine was, while the reading was on its way: then it may
// be older than it seems.
func (r *reading) suspended() bool { return (r.came.skew() - r.asked.skew()).Abs() > clockBound }

// reckoning is how the servers' clock follows from those of this machine, since a reading
// that was believed. It does not change.
type reckoning struct {
	since   moment // when the reading came
	at      semel.Instant
	lead    time.Duration // by how much at least that is ahead of the servers', and to be lost
	ceiling semel.Instant // how far the servers' clock can have been
	agreed  bool          // more than one reading says so

	// What came after it, if it is not to be relied on any more.
	stopped error
	jump    *reading // to be confirmed
}

// now is the time. It never goes back: lead is lost by a tenth of the time that passes.
func (k *reckoning) now(m moment) semel.Instant {
	passed := m.mono - k.since.mono
	return k.at.Add(passed - min(k.lead, passed/10))
}

// holds reports whether the time follows from the reckoning, without another reading.
func (k *reckoning) holds(m moment) bool {
	return k.stopped == nil && m.mono-k.since.mono <= maxAge && (m.skew()-k.since.skew()).Abs() <= clockBound
}

// next is the reckoning after another reading. High is the latest time that is known to
// have been given out before it was asked for, by whomever. K is nil for the first one.
func (k *reckoning) next(r reading, high semel.Instant) *reckoning {
	if behind := high.Sub(r.at); behind > clockBound {
		return k.stop(&behindError{behind, high}, nil)
	}
	next := &reckoning{since: r.came, at: max(r.at, high), ceiling: r.at.Add(r.trip())}
	if k != nil {
		passed := r.came.mono - k.since.mono
		// The clocks of two machines drift apart by far less than a thousandth.
		if ahead := r.at.Sub(k.ceiling) - passed; ahead > clockBound+passed/1000 && !k.confirmedBy(&r) {
			first := &r
			if k.jump != nil && agree(k.jump, &r) {
				first = k.jump
			}
			return k.stop(&aheadError{ahead}, first)
		}
		if now := k.now(r.came); k.stopped == nil && now.Sub(next.ceiling) <= clockBound {
			next.at = max(next.at, now)
		} // or nobody was told how far it had come
		next.agreed = true
	}
	next.lead = max(0, next.at.Sub(next.ceiling))
	return next
}

// stop is the reckoning after a reading that can't be believed.
func (k *reckoning) stop(why error, jump *reading) *reckoning {
	stop := new(reckoning)
	if k != nil {
		*stop = *k
	}
	stop.stopped, stop.jump = why, jump
	return stop
}

// confirmedBy reports whether a reading that is ahead confirms an earlier one.
func (k *reckoning) confirmedBy(r *reading) bool {
	return k.jump != nil && r.asked.mono-k.jump.came.mono >= confirmAfter && agree(k.jump, r)
}

// agree reports whether the servers' clock went on from one reading to a later one as the
// monotonic clock did.
func agree(a, b *reading) bool {
	apart := b.at.Sub(a.at) - (b.came.mono - a.came.mono)
	return apart.Abs() <= clockBound+a.trip()+b.trip()
}

type behindError struct {
	by    time.Duration
	until semel.Instant
}

func (e *behindError) Error() string {
	return fmt.Sprintf("the servers' clock is %v behind the time that this store has been used with: put it right, or wait until %v",
		e.by.Round(time.Millisecond), e.until.Time().UTC().Format(time.RFC3339))
}

type aheadError struct{ by time.Duration }

func (e *aheadError) Error() string {
	return fmt.Sprintf("the servers' clock went ahead by %v at once: it is believed when it does so for %v more, unless it is put right", e.by.Round(time.Millisecond), confirmAfter)
}

// clock is the clock of a Store.
type clock struct {
	source   func() moment // replaced by tests, like the next one
	readTime func(ctx context.Context, c rueidis.Client) (semel.Instant, error)

	shift atomic.Int64 // see Advance
	state atomic.Pointer[reckoning]
	given atomic.Int64 // the latest time that was given out, without the shift
	asked atomic.Int64 // when the servers were asked last, by the monotonic clock

	mu    sync.Mutex
	going *attempt // to read the servers' clock
}

// attempt is one that several callers may wait for.
type attempt struct {
	over chan struct{}
	err  error // afterwards
}

func (c *clock) init() {
	c.readTime = readTime
	start := time.Now()
	c.source = func() moment {
		now := time.Now()
		return moment{wall: time.Duration(now.UnixNano()), mono: now.Sub(start)}
	}
}

// give gives out a time, which is no earlier than any before: where one reckoning follows
// another, callers may still use the former.
func (c *clock) give(at semel.Instant) semel.Instant {
	for {
		last := c.given.Load()
		if int64(at) <= last {
			at = semel.Instant(last)
			break
		}
		if c.given.CompareAndSwap(last, int64(at)) {
			break
		}
	}
	return at.Add(time.Duration(c.shift.Load()))
}

// now is the time, as good as it is known.
func (c *clock) now() semel.Instant {
	return c.state.Load().now(c.source()).Add(time.Duration(c.shift.Load()))
}
