package offsetclock

import (
	"math"
	"time"

	"github.com/semelhq/semel/internal/bootclock"
	"github.com/semelhq/semel/store"
)

// reckoning derives the time from this machine's clocks, since a reading of the servers' clock
// (dead reckoning). It is immutable.
type reckoning struct {
	note Note
	at   store.Instant // the time when the reading came; it hadn't yet followed a leap in the note

	since   Moment            // when the reading came
	boot    bootclock.Reading // the latest boot known at that time
	lead    time.Duration     // at least how far it is ahead of the servers' clock; now makes up for it
	ceiling store.Instant     // the latest time that the reading can mean
	paused  *pause            // nobody had looked before this process
}

// pause is a time during which nobody looked at the clock, to be confirmed.
type pause struct {
	at   store.Instant // when somebody last looked
	by   time.Duration
	seen time.Duration // when this process noticed it, by the monotonic clock
}

// unfollowed returns the time at a moment, if it has followed no leap since the reading.
func (k *reckoning) unfollowed(m Moment, slept time.Duration) store.Instant {
	passed := m.Mono - k.since.Mono + slept
	return k.at.Add(passed - min(k.lead, passed/10))
}

// now returns the time. It never goes back: a lead shrinks by a tenth of the time that passes.
func (k *reckoning) now(m Moment) store.Instant {
	at := k.unfollowed(m, 0)
	if k.note.follows(at) {
		at = at.Add(-k.note.Off)
	}
	return at
}

// holds reports whether the reckoning still gives the time without another reading.
func (k *reckoning) holds(m Moment, bound time.Duration) bool {
	return m.Mono-k.since.Mono <= MaxAge && (m.skew()-k.since.skew()).Abs() <= bound
}

// expected is the time that the process expects before it looks at a reading. Like a
// reckoning's time, it hasn't followed a leap that the note waits for.
type expected struct {
	least store.Instant // the time can't be earlier
	most  store.Instant // a reading can't show a later one, unless the servers' clock has leapt
}

// onStart returns what a process expects if it has only the note.
func (n *Note) onStart(r *Reading) expected {
	e := expected{n.At, n.At.Add(Near)}
	if n.At == 0 {
		e.most = math.MaxInt64 // nobody has ever used the store
	} else if counted, ok := n.counted(r.Boot); ok {
		e.most = counted.Add(Near)
		if r.At.Add(n.Off).Sub(counted).Abs() > Near {
			e.least = max(e.least, counted)
		}
	}
	return e
}

// carriedOn returns what a process expects by its own reckoning. It also returns the note, with
// whatever this process has done about a leap but couldn't note. given is the latest time that
// it has returned.
func (k *reckoning) carriedOn(n Note, r *Reading, slept time.Duration, given store.Instant, bound time.Duration) (expected, Note) {
	passed := r.Came.Mono - k.since.Mono + slept
	at, most := k.unfollowed(r.Came, slept), k.ceiling.Add(passed+passed/1000+Leap) // machines drift much less
	if n.Off < 0 && n.Until == k.note.Leap.At {
		n = n.followed() // this process has followed, but couldn't note it
	}
	switch waits := k.note.Off < 0; {
	case waits && n.Leap.At == k.note.Until: // another process has followed
		at, most = max(at.Add(-k.note.Off), given), most.Add(-k.note.Off)
	case k.note.follows(at): // this process has, since its reading
		if n.Until != k.note.Until {
			n = n.waitingAs(&k.note)
		}
	default:
		at = max(at, given)
	}
	if n.At > at.Add(bound) { // other processes know the time better
		return expected{n.At, n.At.Add(Near)}, n
	}
	return expected{max(at, n.At), most}, n
}

// finding is what a reading reveals about the servers' clock.
type finding int

const (
	inStep finding = iota // it is within the usual error
	ahead                 // it has leapt ahead
	behind                // it was put back
)

// find compares a reading with what was expected.
func (e *expected) find(r *Reading, off, bound time.Duration) finding {
	switch at := r.At.Add(off); {
	case at > e.most:
		return ahead
	case e.least.Sub(at.Add(r.trip())) > bound:
		return behind
	}
	return inStep
}

// next returns the reckoning after another reading. n is the note from before the request for
// the reading, and given is the latest time that this process had returned by then. k is nil
// for the first reading.
func (k *reckoning) next(n Note, r Reading, given store.Instant, bound time.Duration) *reckoning {
	next := &reckoning{since: r.Came, boot: r.Boot}
	var e expected
	if k == nil {
		e = n.onStart(&r)
	} else {
		var slept time.Duration
		slept, next.boot = k.boot.Until(r.Boot)
		e, n = k.carriedOn(n, &r, slept, given, bound)
		next.paused = k.paused
	}
	found := e.find(&r, n.Off, bound)
	if found == ahead && k == nil {
		next.paused = &pause{at: e.least, by: r.At.Add(n.Off).Sub(e.least), seen: r.Came.Mono}
	}
	if found != inStep {
		off := e.least.Sub(r.At.Add(r.trip() / 2))
		if k != nil && (off-k.note.Off).Abs() <= Leap {
			n = n.waitingAs(&k.note) // this process knew, but couldn't note it
		}
		n = n.moved(off, e.least)
	}
	if p := next.paused; p != nil && r.Asked.Mono-p.seen >= ConfirmAfter {
		if next.paused = nil; n.Since == p.at {
			n.Leap = store.Leap{At: p.at, By: -p.by}
		}
	}
	next.at, next.ceiling = max(r.At.Add(n.Off), e.least), r.At.Add(n.Off+r.trip())
	next.lead = max(0, next.at.Sub(next.ceiling))
	if n.follows(next.at) {
		next.at, next.ceiling = next.at.Add(-n.Off), next.ceiling.Add(-n.Off)
		n = n.followed()
	}
	next.note = n
	return next
}

// toNote returns the note to write after a reading, given the previous one. It differs only if
// the clock was set, the time has followed, or the old note is out of date.
func (k *reckoning) toNote(was Note, boot bootclock.Reading) Note {
	n := k.note
	n.At, n.Boot, n.BootOff = was.At, was.Boot, was.BootOff
	if n != was || k.at.Sub(was.At) >= Period-time.Second {
		n.At = max(k.at, was.At)
		n.Boot, n.BootOff = boot.ID, time.Duration(k.at.Add(-boot.Up))
	}
	return n
}
