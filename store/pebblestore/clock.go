package pebblestore

import (
	"time"

	"github.com/semelhq/semel"
)

// clock never goes back: see [Store.Now].
type clock struct {
	base   semel.Instant // at began
	began  time.Time     // with its monotonic reading
	behind time.Duration
}

// start begins at the wall clock or at latest, whichever is later.
func (c *clock) start(latest semel.Instant) {
	c.began = time.Now()
	c.base = semel.InstantOf(c.began)
	if latest > c.base {
		c.behind = latest.Sub(c.base)
		c.base = latest
	}
}

func (c *clock) now() semel.Instant {
	return c.base.Add(time.Since(c.began))
}
