//go:build unix

package turns

import (
	"syscall"
	"time"
)

// ProcessorTime is what this process has used so far, by all its threads.
func ProcessorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // it can't fail for the own process
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
