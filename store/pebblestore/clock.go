package pebblestore

import "time"

// clock never goes back: see [Store.Now].
type clock struct {
	base   time.Time // at began, without monotonic part
	began  time.Time // with monotonic part
	behind time.Duration
}

// start begins at the wall clock or at latest, whichever is later.
func (c *clock) start(latest time.Time) {
	c.began = time.Now()
	c.base = c.began.UTC().Round(0)
	if latest.After(c.base) {
		c.behind = latest.Sub(c.base)
		c.base = latest
	}
}

func (c *clock) now() time.Time {
	return c.base.Add(time.Since(c.began))
}
