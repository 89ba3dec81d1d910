// Package heapfloor keeps a process with a small heap from collecting garbage all the time.
//
// Go collects garbage when the heap has doubled since the last collection. The heap of a
// service is a few megabytes and doubles many times a second under load, and each collection
// takes processor time from the calls. With a floor, Go doesn't collect before the heap has
// that size. A heap that is more than half as large is collected as always.
package heapfloor

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

// Size is the floor of the service; see BenchmarkHeapFloor.
const Size = 16 << 20

// Keep sets a floor for the heap of this process until somebody calls stop. It does nothing if
// the environment has GOGC or GOMEMLIMIT: then the user has decided how to collect.
func Keep(size uint64) (stop func()) {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return func() {}
	}
	k := &keeper{size: size}
	k.collected()
	return k.stop
}

// usual is Go's default for GOGC: the heap may grow by so many per cent.
const usual = 100

// smallest is Go's own floor where GOGC is [usual]. It grows with GOGC.
const smallest = 4 << 20

type keeper struct {
	size    uint64
	mu      sync.Mutex
	stopped bool
}

func (k *keeper) stop() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.stopped = true
	debug.SetGCPercent(usual)
}

// collected sets GOGC after a collection, and waits for the next one: the runtime then finds
// that nobody refers to the mark.
func (k *keeper) collected() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stopped {
		return
	}
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	debug.SetGCPercent(percent(k.size, live[0].Value.Uint64()))
	mark := &struct{ of *keeper }{k} // a pointer, because small values without one share memory
	runtime.AddCleanup(mark, (*keeper).collected, k)
}

// percent returns the GOGC with which a heap that has so many live bytes is collected when it
// reaches the floor, or has doubled.
func percent(floor, live uint64) int {
	live = max(live, smallest)
	return int(max(usual, (max(floor, live)-live)*100/live))
}
