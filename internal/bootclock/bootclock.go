// Package bootclock reads the boot clock of this machine, which also counts the time that the
// machine sleeps, and which nobody can set.
package bootclock

import "time"

// Reading is a reading of a machine's boot clock. It is zero if the system has none.
type Reading struct {
	// ID differs for each boot of each machine.
	ID string
	// Up is the time since the boot, and Slept is how much of it the monotonic clock missed.
	Up, Slept time.Duration
}

// minSlept is more than the time between two system calls that read two clocks of a machine.
const minSlept = 100 * time.Millisecond

// Until returns how long the machine slept between the readings b and now, and the reading to
// compare the next one with.
func (b Reading) Until(now Reading) (slept time.Duration, next Reading) {
	switch d := now.Slept - b.Slept; {
	case now.ID != "" && now.ID != b.ID: // it couldn't be read earlier
		return 0, now
	case d > minSlept:
		return d, now
	}
	return 0, b
}
