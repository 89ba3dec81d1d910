//go:build !linux

package offsetclock

// ThisBoot reads the boot clock of this machine. On this system it can't: after the machine has
// slept, the time follows as after a leap.
func ThisBoot() Boot { return Boot{} }
