package dispatch

import (
	"testing"
	"testing/synctest"
	"time"
)

// The pause of a breaker begins with the failure that opens it, or that of a probe: what began
// before and fails late says nothing new.
func TestATryThatFailsLateDoesNotProlongThePause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pause = 30 * time.Second
		b := breaker{after: 2, pause: pause}
		waits := func(want time.Duration) {
			t.Helper()
			if wait, ok := b.allow(); ok != (want == 0) || wait != want {
				t.Fatalf("a try is allowed: %v, else in %v; want %v", ok, wait, want)
			}
		}
		for range 4 {
			waits(0)
		}
		b.done(true)
		if changed, open := b.done(true); !changed || !open {
			t.Fatal("two failures don't open it")
		}
		pass(pause / 3)
		if changed, open := b.done(true); changed || !open {
			t.Error("a late failure changes it")
		}
		waits(pause * 2 / 3)
		pass(pause * 2 / 3)
		waits(0)          // the probe
		waits(pause / 10) // nothing beside it
		b.done(true)
		waits(pause)
		pass(pause)
		waits(0)
		if changed, open := b.done(false); !changed || open {
			t.Error("a probe that succeeds doesn't close it")
		}
		waits(0)
	})
}
