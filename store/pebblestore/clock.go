package pebblestore

import (
	"sync"
	"time"

	"github.com/semelhq/semel/store"
)

// clock never goes back, not even when the directory is opened again: see [Store.Now].
//
// Between two readings it moves by the monotonic clock, so small steps of the wall clock
// don't show. But the monotonic clock stands still while the machine is suspended, or while
// a virtual machine is paused. Only the wall clock counts that time, so when it is far ahead,
// the clock follows it.
//
// A pause can't be told from a wall clock that was set wrong for a moment. The clock follows
// that too: leases and windows end early, as after a pause of that length. Afterwards it is
// far ahead of the wall clock, and runs at half speed until both agree again. It still never
// goes back, and leases last longer than they should, which is the safe side.
type clock struct {
	source  timeSource
	stepped func(by time.Duration) // called after each step ahead

	mu   sync.Mutex
	at   store.Instant // the last reading
	mono time.Duration // of the monotonic clock, then
}

// timeSource reads the wall clock and, at the same moment, the monotonic clock.
type timeSource func() (wall store.Instant, mono time.Duration)

// maxApart is how far the wall clock may be from the store's clock before anything is done
// about it. Leap seconds, and what a time server corrects without a step, are less.
const maxApart = 2 * time.Second

func systemTime() timeSource {
	start := time.Now()
	return func() (store.Instant, time.Duration) {
		t := time.Now()
		return store.InstantOf(t), t.Sub(start)
	}
}

// start begins at the wall clock or at latest, whichever is later.
func (c *clock) start(latest store.Instant) {
	wall, mono := c.source()
	c.at, c.mono = max(wall, latest), mono
}

func (c *clock) now() store.Instant {
	at, stepped := c.read()
	if stepped > 0 {
		c.stepped(stepped)
	}
	return at
}

func (c *clock) read() (at store.Instant, stepped time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	wall, mono := c.source()
	passed := mono - c.mono
	at = c.at.Add(passed)
	switch ahead := at.Sub(wall); {
	case ahead < -maxApart:
		at, stepped = wall, -ahead
	case ahead > maxApart:
		at = c.at.Add((passed + 1) / 2)
	}
	c.at, c.mono = at, mono
	return at, stepped
}
