package offsetclock

import (
	"errors"
	"fmt"
	"time"

	"github.com/semelhq/semel/internal/bootclock"
	"github.com/semelhq/semel/store"
)

const (
	// Near is how far the time may be past the noted time if nothing is wrong: a process writes
	// a note after every reading, unless it is busy or has just restarted.
	Near = 2 * Period
	// MinWait is the shortest time that a leap ahead must last before the time follows it. By
	// then a process that looks every Period has seen it.
	MinWait = 10 * time.Second
	// MaxWait is how long even the longest leap must last.
	MaxWait = time.Hour
	// AcceptAfter is how soon the time follows a leap that an operator accepts. By then all
	// processes have read the note.
	AcceptAfter = 2 * Period
)

// Note is everything that all processes on a store agree on about its time, and all of it that
// survives their restarts. It is stored beside the records and changed by compare-and-set.
type Note struct {
	// At is a time that Now has returned in some process; it is a few seconds old while the
	// store is in use.
	At store.Instant
	// Off is how far the store's time is ahead of the servers' clock. It is negative while the
	// time waits to follow that.
	Off time.Duration
	// Since is when Off last changed. At Until, a time that is behind follows the servers'
	// clock; a time that is ahead is then known to be ahead of the calendar. Both are zero if
	// Off is.
	Since, Until store.Instant
	// Leap is the latest leap of the time itself.
	Leap store.Leap
	// Boot names a boot of the machine that wrote the note, and BootOff is how far the time was
	// ahead of the time since that boot. So a process that starts on this machine can tell for
	// how long nobody looked.
	Boot    string
	BootOff time.Duration
}

// noteFormat is the format of a note as text, which begins with its form's number.
const (
	noteForm   = 1
	noteFormat = "1 %d %d %d %d %d %d %q %d"
)

// String returns the note in its stored form.
func (n Note) String() string {
	return fmt.Sprintf(noteFormat, n.At, n.Off, n.Since, n.Until, n.Leap.At, n.Leap.By, n.Boot, n.BootOff)
}

// ParseNote reads the output of String. An empty text is the zero Note: nothing was noted.
func ParseNote(text string) (n Note, err error) {
	if text == "" {
		return n, nil
	}
	var form int
	if _, err := fmt.Sscan(text, &form); err == nil && form > noteForm {
		return Note{}, fmt.Errorf("what is noted of the store's clock has form %d, and this program knows %d: use the program that wrote it, or a later one", form, noteForm)
	}
	if _, err := fmt.Sscanf(text, noteFormat, &n.At, &n.Off, &n.Since, &n.Until, &n.Leap.At, &n.Leap.By, &n.Boot, &n.BootOff); err != nil {
		return Note{}, errors.New("what is noted of the store's clock can't be read")
	}
	return n, nil
}

// follows reports whether the wait is over at the time at, so that the time follows a leap of
// the servers' clock. at itself hasn't followed it yet.
func (n *Note) follows(at store.Instant) bool { return n.Off < 0 && at >= n.Until }

// followed returns the note for the moment when the time follows the servers' clock.
func (n Note) followed() Note {
	n.Leap = store.Leap{At: n.Until, By: -n.Off}
	n.Off, n.Since, n.Until = 0, 0, 0
	return n
}

// waitingAs returns the note with k's data about the leap that the time waits for.
func (n Note) waitingAs(k *Note) Note {
	n.Off, n.Since, n.Until = k.Off, k.Since, k.Until
	return n
}

// counted returns the time by the boot clock, if the machine hasn't rebooted since somebody
// wrote n.
func (n *Note) counted(b bootclock.Reading) (at store.Instant, ok bool) {
	return store.Instant(n.BootOff).Add(b.Up), b.ID != "" && b.ID == n.Boot
}

// moved returns the note for when the servers' clock turns out to be behind the time now by
// off, so that the time itself continues unchanged. A change no larger than clocks' usual
// corrections doesn't restart the wait.
func (n Note) moved(off time.Duration, now store.Instant) Note {
	if off < 0 && -off <= Leap {
		off = 0
	}
	if (off-n.Off).Abs() > Leap || (off < 0) != (n.Off < 0) {
		n.Since, n.Until = now, now.Add(min(max(off.Abs(), MinWait), MaxWait))
	}
	if n.Off = off; off == 0 {
		n.Since, n.Until = 0, 0
	}
	return n
}

// state returns what the note says at a time.
func (n *Note) state(now store.Instant) store.ClockState {
	st := store.ClockState{Since: n.Since, Until: n.Until, Leap: n.Leap}
	switch {
	case n.Off == 0:
	case n.Off > 0:
		st.Back = n.Off
		if now >= n.Until {
			st.Ahead = n.Off
		}
	case now >= n.Until:
		return store.ClockState{Leap: store.Leap{At: n.Until, By: -n.Off}}
	default:
		st.Held = -n.Off
	}
	return st
}
