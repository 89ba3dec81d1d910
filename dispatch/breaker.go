package dispatch

import (
	"sync"
	"time"
)

// breaker stops tries at a receiver that is down, so that the messages wait instead
// of using up their tries.
type breaker struct {
	after int           // tries in vain that open it; below zero never
	pause time.Duration // that it stays open

	mu      sync.Mutex
	vain    int       // tries in vain, one after the other
	until   time.Time // open until then; zero when it is closed
	probing bool      // one try was let through to see
}

// allow reports whether a try may be made now, and otherwise when to ask again. Who
// is allowed tells done, or skip.
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

// skip says that the try which was allowed was not made.
func (b *breaker) skip() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.probing = false
}

// done tells how a try ended, and reports whether that opened or closed the breaker.
func (b *breaker) done(vain bool) (changed, open bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	was := !b.until.IsZero()
	probed := b.probing
	b.probing = false
	switch {
	case !vain:
		b.vain, b.until = 0, time.Time{}
	case b.after > 0:
		b.vain++
		// A try that began before the breaker opened does not prolong it.
		if b.vain >= b.after && (!was || probed) {
			b.until = time.Now().Add(b.pause)
		}
	}
	return was != !b.until.IsZero(), !b.until.IsZero()
}
