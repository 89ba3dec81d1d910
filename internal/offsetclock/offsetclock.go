// Package offsetclock is the clock of all stores that outlive a process: a time that follows
// the clock of servers, or the wall clock of this machine, but not its leaps.
//
// What expired early is executed twice, and what is kept longer harms nobody; and a lease that
// ends early has two holders. So the time runs by monotonic clocks, which nobody can set, and
// a reading of the servers' clock only corrects it:
//
//   - Between readings the time is carried on by the monotonic clock of this machine, so you
//     can read it without a round trip. Time for which the machine slept is known by its boot
//     clock.
//   - A reading within Bound behind the time, or Leap ahead of it, is what clocks are off by.
//     If it is ahead, the time jumps to it. If it is behind, the time runs a tenth slower until
//     they agree.
//   - Any other reading is a leap of the servers' clock. The time goes on as it was, and how far
//     it is off is noted beside the records, for all processes and for those that start later.
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

	"github.com/semelhq/semel/store"
)

const (
	// MaxAge is how old a reading may be. At 500 ppm, more than a quartz clock drifts, the
	// clock is 0.03 s wrong by then.
	MaxAge = time.Minute
	// Leap is how far ahead a reading may be to be believed at once.
	Leap = time.Second
	// ConfirmAfter is how far apart two readings are that agree on a pause.
	ConfirmAfter = 5 * time.Second
	// minSlept is more than two system calls are apart that read two clocks of a machine.
	minSlept = 100 * time.Millisecond
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

// Boot is what the boot clock of a machine shows, which counts the time for which the machine
// sleeps, and which nobody can set. It is zero where the system has none.
type Boot struct {
	// ID differs for each boot of each machine.
	ID string
	// Up is the time since the boot, and Slept how much of it the monotonic clock lacks.
	Up, Slept time.Duration
}

// Reading is what the servers' clock showed at some moment between Asked and Came.
type Reading struct {
	At          store.Instant
	Asked, Came Moment
	// Boot is what the boot clock showed when it came.
	Boot Boot
}

// trip is how long the round trip took. The servers' clock went on by at most that before
// the answer came.
func (r *Reading) trip() time.Duration { return r.Came.Mono - r.Asked.Mono }

// ErrSuspended means that the machine was suspended, or its wall clock set, while the
// servers' clock was read, so the reading may be older than it seems.
var ErrSuspended = errors.New("the answer is as old as the machine was suspended for")

// reckoning says how the time follows from the clocks of this machine, since a reading of the
// servers' clock (dead reckoning). It is immutable.
type reckoning struct {
	note Note
	at   store.Instant // the time when the reading came; it hadn't followed a leap that the note has

	since   Moment        // when the reading came
	boot    Boot          // the latest that is known of by then
	lead    time.Duration // how far it is ahead of the servers' clock at least; now makes up for it
	ceiling store.Instant // the latest time that the reading can have meant
	paused  *pause        // nobody had looked before this process did
}

// pause is a time in which nobody looked at the clock, to be confirmed.
type pause struct {
	at   store.Instant // when somebody last did
	by   time.Duration
	seen time.Duration // when this process noticed it, by the monotonic clock
}

// unfollowed is the time at a moment, if it follows no leap since the reading.
func (k *reckoning) unfollowed(m Moment, slept time.Duration) store.Instant {
	passed := m.Mono - k.since.Mono + slept
	return k.at.Add(passed - min(k.lead, passed/10))
}

// now is the time. It never goes back: a lead shrinks by a tenth of the time that passes.
func (k *reckoning) now(m Moment) store.Instant {
	at := k.unfollowed(m, 0)
	if k.note.follows(at) {
		at = at.Add(-k.note.Off)
	}
	return at
}

// holds reports whether the reckoning still gives the time, without another reading.
func (k *reckoning) holds(m Moment, bound time.Duration) bool {
	return m.Mono-k.since.Mono <= MaxAge && (m.skew()-k.since.skew()).Abs() <= bound
}

// next is the reckoning after another reading. N was noted before the reading was asked for,
// and given is the latest time that this process had returned by then. K is nil for the first
// reading.
//
// Everything is compared by a time that doesn't follow the leap that n waits for.
func (k *reckoning) next(n Note, r Reading, given store.Instant, bound time.Duration) *reckoning {
	next := &reckoning{since: r.Came, boot: r.Boot}
	var carried, most store.Instant // the time by this process's own reckoning, and at most
	if k != nil {
		var slept time.Duration
		next.boot, next.paused = k.boot, k.paused
		if k.boot.ID != r.Boot.ID && r.Boot.ID != "" {
			next.boot = r.Boot
		} else if r.Boot.Slept-k.boot.Slept > minSlept {
			slept, next.boot = r.Boot.Slept-k.boot.Slept, r.Boot
		}
		passed := r.Came.Mono - k.since.Mono + slept
		most = k.ceiling.Add(passed + passed/1000) // far more than two machines drift apart by
		carried = k.unfollowed(r.Came, slept)
		if n.Off < 0 && n.Until == k.note.Leap.At { // this process has followed, and couldn't note it
			n = n.followed()
		}
		switch by := -k.note.Off; {
		case by <= 0:
			carried = max(carried, given)
		case n.Leap.At == k.note.Until: // another process has followed
			carried, most = max(carried.Add(by), given), most.Add(by)
		case k.note.follows(carried):
			if n.Until != k.note.Until {
				n.Off, n.Since, n.Until = k.note.Off, k.note.Since, k.note.Until
			}
		default:
			carried = max(carried, given)
		}
	}
	known := max(carried, n.At) // the time is at least this
	least, between := r.At.Add(n.Off), r.At.Add(r.trip()/2)
	leapt := least.Sub(known) > Near
	if counted, ok := n.counted(r.Boot); ok && k == nil {
		if leapt = least.Sub(counted) > Near; leapt || counted.Sub(least) > Near {
			known = max(known, counted)
		}
	}
	switch {
	case k == nil && n.At == 0: // nobody has ever used the store
		leapt = false
	case k != nil && n.At <= carried.Add(bound): // nobody knows of a time that this process doesn't
		leapt = least.Sub(most) > Leap
	}
	if leapt || known.Sub(least.Add(r.trip())) > bound {
		if leapt && k == nil {
			next.paused = &pause{at: known, by: least.Sub(known), seen: r.Came.Mono}
		}
		if k != nil && (known.Sub(between)-k.note.Off).Abs() <= Leap { // this process knew, and couldn't note it
			n.Off, n.Since, n.Until = k.note.Off, k.note.Since, k.note.Until
		}
		n = n.moved(known.Sub(between), known)
	}
	if p := next.paused; p != nil && r.Asked.Mono-p.seen >= ConfirmAfter {
		if next.paused = nil; n.Since == p.at {
			n.Leap = store.Leap{At: p.at, By: -p.by}
		}
	}
	next.at, next.ceiling = max(r.At.Add(n.Off), known), r.At.Add(n.Off+r.trip())
	next.lead = max(0, next.at.Sub(next.ceiling))
	if n.follows(next.at) {
		next.at, next.ceiling = next.at.Add(-n.Off), next.ceiling.Add(-n.Off)
		n = n.followed()
	}
	next.note = n
	return next
}

// toNote is what to note after a reading, beside what was noted before. It differs only if the
// clock has been set, the time has followed, or what was noted is old.
func (k *reckoning) toNote(was Note, boot Boot) Note {
	n := k.note
	n.At, n.Boot, n.BootOff = was.At, was.Boot, was.BootOff
	if n != was || k.at.Sub(was.At) >= Period-time.Second {
		n.At = max(k.at, was.At)
		n.Boot, n.BootOff = boot.ID, time.Duration(k.at.Add(-boot.Up))
	}
	return n
}
