//go:build !linux

package bootclock

// Now returns the zero Reading: on this system the boot clock can't be read.
func Now() Reading { return Reading{} }
