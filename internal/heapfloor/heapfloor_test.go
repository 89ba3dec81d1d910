package heapfloor

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(usual) // whatever the environment of the tests says
	m.Run()
}

// unset removes the variables with which a user decides about the collector.
func unset(t *testing.T) {
	for _, name := range []string{"GOGC", "GOMEMLIMIT"} {
		t.Setenv(name, "")
	}
}

var sink []byte

// collections returns how often the heap is collected while so many bytes become garbage.
func collections(bytes int) uint32 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range bytes >> 10 {
		sink = make([]byte, 1<<10)
	}
	runtime.ReadMemStats(&after)
	return after.NumGC - before.NumGC
}

func gogc() uint64 {
	s := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// A small heap is collected when it reaches the floor. A collection that the runtime begins a
// little early doesn't matter.
func TestASmallHeapReachesTheFloor(t *testing.T) {
	unset(t)
	stop := Keep(64 << 20)
	with := collections(1 << 30)
	stop()
	without := collections(1 << 30)
	t.Logf("%d collections with the floor, %d without it", with, without)
	if with > 32 {
		t.Errorf("the heap was collected %d times for 1 GiB", with)
	}
	if without < 2*with {
		t.Errorf("without a floor the heap was collected %d times: this test shows nothing", without)
	}
}

// When a heap outgrows the floor, it may only double, as always, and when it shrinks, the floor
// is there again.
func TestALargeHeapOnlyDoubles(t *testing.T) {
	unset(t)
	stop := Keep(64 << 20)
	defer stop()
	wait := func(ok func(percent uint64) bool) {
		for !ok(gogc()) { // the cleanup comes after the collection, in a goroutine of the runtime
			runtime.GC()
			runtime.Gosched()
		}
	}
	large := make([]byte, 128<<20)
	wait(func(percent uint64) bool { return percent == usual })
	runtime.KeepAlive(large)
	large = nil
	wait(func(percent uint64) bool { return percent > usual })
}

// Whoever has set one of the variables has decided.
func TestTheEnvironmentDecides(t *testing.T) {
	for _, name := range []string{"GOGC", "GOMEMLIMIT"} {
		t.Run(name, func(t *testing.T) {
			unset(t)
			t.Setenv(name, "1GiB")
			defer Keep(64 << 20)()
			if percent := gogc(); percent != usual {
				t.Errorf("GOGC is %d", percent)
			}
		})
	}
}

func TestPercent(t *testing.T) {
	for _, c := range []struct{ live, want uint64 }{
		{0, 1500}, {4 << 20, 1500}, {8 << 20, 700}, {16 << 20, 300}, {32 << 20, usual}, {48 << 20, usual}, {1 << 40, usual},
	} {
		if got := percent(64<<20, c.live); uint64(got) != c.want {
			t.Errorf("with %d bytes live: %d, want %d", c.live, got, c.want)
		}
	}
}
