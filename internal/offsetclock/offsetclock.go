// Package offsetclock is the clock of all stores that outlive a process: a time that follows
// the clock of servers, or the wall clock of this machine, but not its leaps.
//
// A record that expires early makes its call run twice, while one that stays longer harms
// nobody; a lease that ends early has two holders. So the time runs by monotonic clocks, which
// nobody can set, and a reading of the servers' clock only corrects it:
//
//   - Between readings the monotonic clock of this machine carries the time on, so you can
//     read it without a round trip. The boot clock says how long the machine slept.
//   - A reading within Bound behind the time, or Leap ahead of it, is within clocks' usual
//     error. If it is ahead, the time jumps to it. If it is behind, the time runs a tenth
//     slower until they agree.
//   - Any other reading is a leap of the servers' clock. The time goes on as it was, and a
//     note beside the records says how far it is off, for all processes, including later ones.
//   - When a leap ahead has lasted as long as it is long, at most MaxWait, the time follows it
//     in one step, in all processes at the same instant. Leases that began before the step are
//     judged without it, see [store.Leap].
//   - A clock that was put back is never followed: the time stays ahead of it.
//   - For a time in which no process has looked, nobody can tell a leap from a pause, unless the
//     boot clock does. It is treated as a leap; but leases that began before are judged by the
//     servers' clock as soon as two readings, ConfirmAfter apart, agree on it.
package offsetclock

import (
	"errors"
	"time"

	"github.com/semelhq/semel/internal/bootclock"
	"github.com/semelhq/semel/store"
)

const (
	// MaxAge is how old a reading may be. At 500 ppm, which is more than a quartz clock drifts,
	// the clock is then 0.03 s off.
	MaxAge = time.Minute
	// Leap is how far ahead a reading may be to be believed at once.
	Leap = time.Second
	// ConfirmAfter is how far apart two readings must be to confirm a pause.
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

// skew returns how far the wall clock is ahead of the monotonic one.
func (m Moment) skew() time.Duration { return m.Wall - m.Mono }

// Reading is the servers' clock at some moment between Asked and Came.
type Reading struct {
	At          store.Instant
	Asked, Came Moment
	// Boot is the boot clock at Came.
	Boot bootclock.Reading
}

// trip returns how long the round trip took. The servers' clock advanced by at most that before
// the answer came.
func (r *Reading) trip() time.Duration { return r.Came.Mono - r.Asked.Mono }

// ErrSuspended means that the machine was suspended, or its wall clock set, during a reading of
// the servers' clock, so the reading may be older than it seems.
var ErrSuspended = errors.New("the answer is as old as the machine was suspended for")
