package dispatch

import (
	"sync"
	"time"
)

// breaker is a circuit breaker: it stops tries at a receiver that is down, so that the
// messages wait instead of using up their tries.
type breaker struct {
	after int           // consecutive failed tries that open it; below zero never
	pause time.Duration // that it stays open

	mu       sync.Mutex
	failures int       // consecutive failed tries
	opened   int       // how often it has opened, since the start
	until    time.Time // open until then; zero when it is closed
	probing  bool      // one try was allowed as a probe
}

// allow reports whether a try may be made now, and otherwise when to ask again. After
// an allowed try, call done, or skip if it wasn't made, with the number that it returns: how
// often the breaker had opened before. While it is open, only the probe has the current one.
func (b *breaker) allow() (opened int, wait time.Duration, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.until.IsZero() {
		return b.opened, 0, true
	}
	if wait = time.Until(b.until); wait > 0 {
		return 0, wait, false
	}
	if b.probing {
		return 0, b.pause / 10, false
	}
	b.probing = true
	return b.opened, 0, true
}

// skip says that an allowed try wasn't made.
func (b *breaker) skip(opened int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if opened == b.opened {
		b.probing = false
	}
}

// done records how a try ended, and reports whether that opened or closed the breaker. The
// failure of a try that began before the breaker last opened says nothing new: it neither
// prolongs the pause nor stands for the probe. A success closes it, whenever the try began.
func (b *breaker) done(opened int, failed bool) (changed, open bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	was := !b.until.IsZero()
	switch {
	case !failed:
		b.failures, b.until, b.probing = 0, time.Time{}, false
	case opened == b.opened && b.after > 0:
		b.probing = false
		if b.failures++; b.failures >= b.after {
			b.opened++
			b.until = time.Now().Add(b.pause)
		}
	}
	return was != !b.until.IsZero(), !b.until.IsZero()
}
