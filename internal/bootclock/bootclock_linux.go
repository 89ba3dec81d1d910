package bootclock

import (
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

// The numbers of the kernel's clocks, which package syscall lacks.
const (
	clockMonotonic = 1
	clockBoot      = 7
)

var bootID = sync.OnceValue(func() string {
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // empty if it can't be read
	return strings.TrimSpace(string(id))
})

// Now reads the boot clock of this machine.
func Now() Reading {
	for range 5 {
		before, ok := kernelClock(clockMonotonic)
		up, ok2 := kernelClock(clockBoot)
		after, _ := kernelClock(clockMonotonic)
		if !ok || !ok2 {
			break
		}
		if after-before < minSlept/4 { // otherwise the kernel was busy with something else
			return Reading{ID: bootID(), Up: up, Slept: up - after}
		}
	}
	return Reading{}
}

func kernelClock(number uintptr) (time.Duration, bool) {
	var ts syscall.Timespec
	_, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, number, uintptr(unsafe.Pointer(&ts)), 0)
	return time.Duration(ts.Nano()), errno == 0
}
