package bench

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel/internal/heapfloor"
	"github.com/semelhq/semel/internal/rig/turns"
)

// BenchmarkHeapFloor shows what the floor of the service's heap is worth, and one of four
// times its size: pairs of begin and complete, and how often the heap was collected in a second.
//
// A larger heap takes longer to be used for the first time: until it has reached the floor once,
// the system clears each page. Turns shorter than that show the cost and not the gain.
func BenchmarkHeapFloor(b *testing.B) {
	for _, kind := range kinds {
		if !slices.Contains([]string{"pebble", "postgres"}, kind.name) {
			continue
		}
		for _, size := range []uint64{heapfloor.Size, heapfloor.Size * 4} {
			b.Run(fmt.Sprintf("%s/%dMiB", kind.name, size>>20), func(b *testing.B) {
				p := kind.place(b)
				t := newTarget(b, p.store(b, "ours"))
				var f floors
				with, without := &collected{size: size}, new(collected)
				load := func(name string, c *collected) turns.Load {
					return turns.Load{Name: name, Callers: *callers, Step: func(ctx context.Context, caller *turns.Caller) error {
						f.change(c)
						return t.execute(ctx, caller)
					}}
				}
				turns.Compare(b, load("with", with), load("without", without))
				f.change(nil)
				b.ReportMetric(with.perSecond(), "with-collections/s")
				b.ReportMetric(without.perSecond(), "without-collections/s")
			})
		}
	}
}

// collected counts the collections of a load's turns.
type collected struct {
	size        uint64 // of the floor; 0: none
	collections uint32
	during      time.Duration
}

func (c *collected) perSecond() float64 { return float64(c.collections) / c.during.Seconds() }

// floors changes the floor of the process with the turns.
type floors struct {
	mu    sync.RWMutex
	now   *collected
	stop  func()
	gcs   uint32
	since time.Time
}

// change ends the turn of another load, and begins that of c.
func (f *floors) change(c *collected) {
	f.mu.RLock()
	same := f.now == c
	f.mu.RUnlock()
	if same {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.now == c {
		return
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	gcs, now := m.NumGC-m.NumForcedGC, time.Now() // a turn forces one
	if f.now != nil {
		f.now.collections += gcs - f.gcs
		f.now.during += now.Sub(f.since)
		f.stop()
	}
	f.now, f.gcs, f.since, f.stop = c, gcs, now, func() {}
	if c != nil && c.size > 0 {
		f.stop = heapfloor.Keep(c.size)
	}
}
