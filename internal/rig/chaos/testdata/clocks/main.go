// Command clocks says what its clocks show, for each line that it reads: the seconds of
// the wall clock, the nanoseconds since its start, and those of the kernel's clock.
package main

import (
	"bufio"
	"fmt"
	"os"
	"syscall"
	"time"
	"unsafe"
)

func main() {
	start := time.Now()
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var ts syscall.Timespec
		_, _, _ = syscall.Syscall(syscall.SYS_CLOCK_GETTIME, 1, uintptr(unsafe.Pointer(&ts)), 0)
		fmt.Println(time.Now().Unix(), int64(time.Since(start)), ts.Nano())
	}
}
