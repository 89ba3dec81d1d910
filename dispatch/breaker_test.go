package dispatch

import (
	"testing"
	"testing/synctest"
	"time"
)

// The pause of a breaker begins with the failure that opens it, or that of a probe: what began
// before and fails late says nothing new, nor does it stand for the probe.
func TestATryThatFailsLateDoesNotProlongThePause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pause = 30 * time.Second
		b := breaker{after: 2, pause: pause}
		waits := func(want time.Duration) (opened int) {
			t.Helper()
			opened, wait, ok := b.allow()
			if ok != (want == 0) || wait != want {
				t.Fatalf("a try is allowed: %v, else in %v; want %v", ok, wait, want)
			}
			return opened
		}
		ends := func(opened int, failed, wantChanged, wantOpen bool) {
			t.Helper()
			if changed, open := b.done(opened, failed); changed != wantChanged || open != wantOpen {
				t.Fatalf("a try that failed (%v) changes it (%v), and it is open (%v)", failed, changed, open)
			}
		}
		var early [7]int
		for i := range early {
			early[i] = waits(0)
		}
		ends(early[0], true, false, false)
		ends(early[1], true, true, true)
		pass(pause / 3)
		ends(early[2], true, false, true)
		waits(pause * 2 / 3)
		pass(pause * 2 / 3)
		probe := waits(0)
		waits(pause / 10) // nothing beside it
		ends(early[3], true, false, true)
		b.skip(early[4])
		waits(pause / 10) // for the probe still runs
		ends(probe, true, false, true)
		waits(pause)
		pass(pause)
		probe = waits(0)
		ends(early[5], true, false, true)
		ends(probe, false, true, false)
		ends(early[6], true, false, false)
		ends(waits(0), true, false, false) // the first failure in a row, not the second
		ends(waits(0), false, false, false)
	})
}
