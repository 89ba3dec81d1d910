//go:build linux

package chaos

import (
	"syscall"
	"unsafe"
)

// now is the machine's monotonic clock, which all processes of a run share and which
// no fault of a run touches.
func now() int64 {
	const clockMonotonic = 1
	var ts syscall.Timespec
	if _, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		panic(errno) // Linux has had this clock for twenty years
	}
	return ts.Nano()
}
