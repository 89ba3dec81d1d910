// Package gather batches the work of concurrent callers (group commit).
package gather

import "runtime"

// maxYields is how often Until yields at most, so that callers who have joined don't wait
// too long.
const maxYields = 8

// Until yields the processor while runnable goroutines keep joining, at most eight times, so
// that callers woken together end up in one batch. Joined counts those that have joined. One
// yield isn't enough: some callers are still in the run queues of other processors.
func Until(joined func() uint64) {
	for range maxYields {
		before := joined()
		runtime.Gosched()
		if joined() == before {
			return
		}
	}
}
