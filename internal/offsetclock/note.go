package offsetclock

import (
	"errors"
	"fmt"
	"time"

	"github.com/semelhq/semel/store"
)

const (
	// Near is how far the time may be past the noted one if nothing is wrong: a process notes
	// it after every reading, unless it is busy or has just restarted.
	Near = 2 * Period
	// MinWait is how long a leap ahead must last at least before the time follows it. A process
	// that looks every Period has seen it by then.
	MinWait = 10 * time.Second
	// MaxWait is how long the longest must last.
	MaxWait = time.Hour
	// AcceptAfter is how soon the time follows a leap that an operator accepts. By then all
	// processes have read the note.
	AcceptAfter = 2 * Period
)

// Note is what all processes on a store agree on about its time, and all that survives of it
// when they restart. It is stored beside the records and changed by compare-and-set.
type Note struct {
	// At is a time that Now returned somewhere; it is a few seconds old while the store is in
	// use.
	At store.Instant
	// Off is how far the store's time is ahead of the servers' clock. It is negative while
	// the time doesn't follow that.
	Off time.Duration
	// Since is when Off last changed. At Until, a time that is behind follows the servers'
	// clock; one that is ahead has then proved to be ahead of the calendar. Both are zero
	// where Off is.
	Since, Until store.Instant
	// Leap is the latest one of the time itself.
	Leap store.Leap
	// Boot names a boot of the machine that wrote the note, and BootOff is how far the time
	// was ahead of the time since that boot. So a process that starts on this machine can tell
	// how long nobody looked.
	Boot    string
	BootOff time.Duration
}

// noteFormat is that of a note as text, which begins with the number of its form.
const (
	noteForm   = 1
	noteFormat = "1 %d %d %d %d %d %d %q %d"
)

// String is the note as it is stored.
func (n Note) String() string {
	return fmt.Sprintf(noteFormat, n.At, n.Off, n.Since, n.Until, n.Leap.At, n.Leap.By, n.Boot, n.BootOff)
}

// ParseNote reads what String has written. An empty text is the zero Note: nothing was noted.
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

// follows reports whether the time at has come to where it follows a leap of the servers'
// clock. At is a time before it does so.
func (n *Note) follows(at store.Instant) bool { return n.Off < 0 && at >= n.Until }

// followed is the note from the moment on where the time follows the servers' clock.
func (n Note) followed() Note {
	n.Leap = store.Leap{At: n.Until, By: -n.Off}
	n.Off, n.Since, n.Until = 0, 0, 0
	return n
}

// waitingAs is the note with k's data on the leap that the time waits for.
func (n Note) waitingAs(k *Note) Note {
	n.Off, n.Since, n.Until = k.Off, k.Since, k.Until
	return n
}

// counted is the time by the boot clock, if the machine hasn't rebooted since somebody noted
// n.
func (n *Note) counted(b Boot) (at store.Instant, ok bool) {
	return store.Instant(n.BootOff).Add(b.Up), b.ID != "" && b.ID == n.Boot
}

// moved is the note when the servers' clock turns out to be off behind the time now. So the
// time goes on as it was. A change no larger than clocks' usual corrections doesn't restart
// the wait.
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

// state is what the note says at a time.
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
