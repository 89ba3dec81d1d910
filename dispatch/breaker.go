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
	until    time.Time // open until then; zero when it is closed
	probing  bool      // one try was allowed as a probe
}

// allow reports whether a try may be made now, and otherwise when to ask again. After
// an allowed try, call done, or skip if it wasn't made.
func (b *breaker) allow() (wait time.Duration, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.until.IsZero() {
		return 0, true
	}
	if wait = time.Until(b.until); wait > 0 {
		return wait, false
	}
	if b.probing {
		return b.pause / 10, false
	}
	b.probing = true
	return 0, true
}

// skip says that an allowed try wasn't made.
func (b *breaker) skip() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.probing = false
}

// done records how a try ended, and reports whether that opened or closed the breaker.
func (b *breaker) done(failed bool) (changed, open bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	was := !b.until.IsZero()
	probed := b.probing
	b.probing = false
	switch {
	case !failed:
		b.failures, b.until = 0, time.Time{}
	case b.after > 0:
		b.failures++
		// A try that began before the breaker opened does not prolong it.
		if b.failures >= b.after && (!was || probed) {
			b.until = time.Now().Add(b.pause)
		}
	}
	return was != !b.until.IsZero(), !b.until.IsZero()
}
