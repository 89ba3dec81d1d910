// Package offsetclock extrapolates a server's clock by the monotonic clock of this machine,
// so that you can read the server's time without a round trip.
//
// If a node judges leases by a wrong clock, it ends the leases of others. Fences must rise
// even after a purge, and are made of the time. So a clock that may be wrong returns an error:
//
//   - The clock holds until its last reading is older than MaxAge, or until the wall clock of
//     this machine has moved against the monotonic one by more than Bound, which means that
//     the machine was suspended.
//   - A reading within Bound of the clock is believed. If it is ahead, the clock jumps to it.
//     If it is behind, the clock runs a tenth slower until they agree.
//   - If a reading is further behind a time that any process has returned, either that time
//     or the reading is wrong. The clock stops until the server's clock has caught up.
//   - If a reading is ahead by more than Leap, and by more than this machine was suspended,
//     another reading must confirm it, at least ConfirmAfter later. Until then the clock stops.
package offsetclock

import (
	"errors"
	"fmt"
	"time"

	"github.com/semelhq/semel/store"
)

const (
	// MaxAge is how old a reading may be. At 500 ppm, more than a quartz clock drifts, the
	// clock is 0.03 s wrong by then.
	MaxAge = time.Minute
	// Leap is how far ahead a reading may be to be believed at once.
	Leap = time.Second
	// ConfirmAfter is how long a larger step ahead must last to be believed.
	ConfirmAfter = 5 * time.Second
)

// Machine returns a function that reads the clocks of this machine.
func Machine() func() Moment {
	start := time.Now()
	return func() Moment {
		now := time.Now()
		return Moment{Wall: time.Duration(now.UnixNano()), Mono: now.Sub(start)}
	}
}

// Moment is the time by both clocks of this machine. The monotonic clock stops while the
// machine is suspended.
type Moment struct{ Wall, Mono time.Duration }

// skew is how far the wall clock is ahead of the monotonic one.
func (m Moment) skew() time.Duration { return m.Wall - m.Mono }

// Reading is what the servers' clock showed at some moment between Asked and Came.
type Reading struct {
	At          store.Instant
	Asked, Came Moment
}

// trip is how long the round trip took. The servers' clock went on by at most that before
// the answer came.
func (r *Reading) trip() time.Duration { return r.Came.Mono - r.Asked.Mono }

// ErrSuspended means that the machine was suspended, or its wall clock set, while the
// servers' clock was read, so the reading may be older than it seems.
var ErrSuspended = errors.New("the answer is as old as the machine was suspended for")

// reckoning says how the servers' clock follows from the clocks of this machine, since a
// reading that was believed (dead reckoning). It is immutable.
type reckoning struct {
	at      store.Instant // the time when the reading came
	agreed  bool          // at least two readings agree on it
	stopped error         // why a later reading casts doubt on it, if one does

	since   Moment        // when the reading came
	lead    time.Duration // how far it is ahead of the servers' clock at least; now makes up for it
	ceiling store.Instant // the latest time that the servers' clock can have shown
	jump    *Reading      // the reading that must be confirmed
}

// now is the time. It never goes back: a lead shrinks by a tenth of the time that passes.
func (k *reckoning) now(m Moment) store.Instant {
	passed := m.Mono - k.since.Mono
	return k.at.Add(passed - min(k.lead, passed/10))
}

// holds reports whether the reckoning still gives the time, without another reading.
func (k *reckoning) holds(m Moment, bound time.Duration) bool {
	return k.stopped == nil && m.Mono-k.since.Mono <= MaxAge && (m.skew()-k.since.skew()).Abs() <= bound
}

// next is the reckoning after another reading. High is the latest time that any process is
// known to have returned before the reading was asked for. K is nil for the first reading.
func (k *reckoning) next(r Reading, high store.Instant, bound time.Duration) *reckoning {
	if behind := high.Sub(r.At); behind > bound {
		return k.stop(&BehindError{behind, high}, nil)
	}
	next := &reckoning{since: r.Came, at: max(r.At, high), ceiling: r.At.Add(r.trip())}
	if k != nil {
		passed, slept := r.Came.Mono-k.since.Mono, max(0, r.Came.skew()-k.since.skew())
		// The clocks of two machines drift apart by far less than a thousandth.
		if ahead := r.At.Sub(k.ceiling) - passed; ahead > Leap+slept+passed/1000 && !k.confirmedBy(&r, bound) {
			first := &r
			if k.jump != nil && agree(k.jump, &r, bound) {
				first = k.jump
			}
			return k.stop(&AheadError{ahead}, first)
		}
		if now := k.now(r.Came); k.stopped == nil && now.Sub(next.ceiling) <= bound {
			next.at = max(next.at, now)
		} // otherwise nobody was given a time from it
		next.agreed = true
	}
	next.lead = max(0, next.at.Sub(next.ceiling))
	return next
}

// stop is the reckoning after a reading that can't be believed.
func (k *reckoning) stop(why error, jump *Reading) *reckoning {
	stop := new(reckoning)
	if k != nil {
		*stop = *k
	}
	stop.stopped, stop.jump = why, jump
	return stop
}

// confirmedBy reports whether a reading that is ahead confirms an earlier one.
func (k *reckoning) confirmedBy(r *Reading, bound time.Duration) bool {
	return k.jump != nil && r.Asked.Mono-k.jump.Came.Mono >= ConfirmAfter && agree(k.jump, r, bound)
}

// agree reports whether the servers' clock and the monotonic clock moved by the same time
// between two readings.
func agree(a, b *Reading, bound time.Duration) bool {
	apart := b.At.Sub(a.At) - (b.Came.Mono - a.Came.Mono)
	return apart.Abs() <= bound+a.trip()+b.trip()
}

// BehindError says that a clock has stopped because the servers' clock is behind it.
type BehindError struct {
	by    time.Duration
	until store.Instant
}

// Error says by how much, and until when.
func (e *BehindError) Error() string {
	return fmt.Sprintf("the servers' clock is %v behind the time that this store has been used with: put it right, or wait until %v",
		e.by.Round(time.Millisecond), e.until.Time().UTC().Format(time.RFC3339))
}

// AheadError says that a clock has stopped because the servers' clock jumped ahead.
type AheadError struct{ by time.Duration }

// Error says by how much, and what it takes to be believed.
func (e *AheadError) Error() string {
	return fmt.Sprintf("the servers' clock went ahead by %v at once: it is believed when it does so for %v more, unless it is put right", e.by.Round(time.Millisecond), ConfirmAfter)
}
