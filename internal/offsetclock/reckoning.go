package offsetclock

import (
	"math"
	"time"

	"github.com/semelhq/semel/store"
)

// reckoning says how the time follows from the clocks of this machine, since a reading of the
// servers' clock (dead reckoning). It is immutable.
type reckoning struct {
	note Note
	at   store.Instant // the time when the reading came; it hadn't followed a leap that the note has

	since   Moment        // when the reading came
	boot    Boot          // the latest boot known by then
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

// expected is what the process expects of the time before it looks at a reading. Like the time
// of a reckoning, it doesn't follow a leap that the note waits for.
type expected struct {
	least store.Instant // the time can't be earlier
	most  store.Instant // a reading can't show a later one, unless the servers' clock has leapt
}

// onStart is what a process expects if it has only the note.
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

// carriedOn is what a process expects by its own reckoning. It also returns the note, with what
// this process has done about a leap and couldn't note. given is the latest time that it has
// returned.
func (k *reckoning) carriedOn(n Note, r *Reading, slept time.Duration, given store.Instant, bound time.Duration) (expected, Note) {
	passed := r.Came.Mono - k.since.Mono + slept
	at, most := k.unfollowed(r.Came, slept), k.ceiling.Add(passed+passed/1000+Leap) // machines drift far less apart
	if n.Off < 0 && n.Until == k.note.Leap.At {
		n = n.followed() // as this process has, and couldn't note it
	}
	switch waits := k.note.Off < 0; {
	case waits && n.Leap.At == k.note.Until: // another process has followed
		at, most = max(at.Add(-k.note.Off), given), most.Add(-k.note.Off)
	case k.note.follows(at): // this one has, since its reading
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

// finding is what a reading shows about the servers' clock.
type finding int

const (
	inStep finding = iota // it is off by what clocks are off by
	ahead                 // it has leapt ahead
	behind                // it was put back
)

// find compares a reading with the expectation.
func (e *expected) find(r *Reading, off, bound time.Duration) finding {
	switch at := r.At.Add(off); {
	case at > e.most:
		return ahead
	case e.least.Sub(at.Add(r.trip())) > bound:
		return behind
	}
	return inStep
}

// next is the reckoning after another reading. n is the note from before the reading was
// requested, and given is the latest time that this process had returned by then. k is nil for
// the first reading.
func (k *reckoning) next(n Note, r Reading, given store.Instant, bound time.Duration) *reckoning {
	next := &reckoning{since: r.Came, boot: r.Boot}
	var e expected
	if k == nil {
		e = n.onStart(&r)
	} else {
		var slept time.Duration
		slept, next.boot = k.boot.slept(r.Boot)
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
			n = n.waitingAs(&k.note) // this process knew, and couldn't note it
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

// toNote is the note to write after a reading, given the one before. It differs only if the
// clock has been set, the time has followed, or the old note is out of date.
func (k *reckoning) toNote(was Note, boot Boot) Note {
	n := k.note
	n.At, n.Boot, n.BootOff = was.At, was.Boot, was.BootOff
	if n != was || k.at.Sub(was.At) >= Period-time.Second {
		n.At = max(k.at, was.At)
		n.Boot, n.BootOff = boot.ID, time.Duration(k.at.Add(-boot.Up))
	}
	return n
}
