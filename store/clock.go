package store

import (
	"context"
	"time"
)

// Timekeeper explains the reading of a store's clock. Without it, the engine assumes that the
// clock never leaps.
//
// Such a store's Now uses a clock that nobody can set. If somebody sets the clock of the
// machine or server, Now doesn't follow at once: a record that expires early can make an effect
// happen twice, and one that stays longer harms nobody. It follows a leap ahead in one step,
// once the leap has lasted for its own length, at most an hour; and it never goes back.
type Timekeeper interface {
	// ClockState is the state of the clock at a time that Now has returned. The engine calls
	// it for most deliveries, so it doesn't ask a server.
	ClockState(now Instant) ClockState
	// AcceptClock ends the wait: Now follows a leap ahead within seconds. It returns the state
	// afterwards. If Now isn't waiting, nothing changes.
	AcceptClock(ctx context.Context) (ClockState, error)
}

// ClockState is the state of a store's clock at a time.
type ClockState struct {
	// Held is how far the calendar may be ahead of the store's clock: a leap of the underlying
	// clock that the store doesn't follow yet. Records made meanwhile live that much longer;
	// otherwise they would expire too early once it follows.
	Held time.Duration
	// Back is how far somebody has set the underlying clock back. Zero if Held is set.
	Back time.Duration
	// Ahead is how far the store's clock is ahead of the calendar: Back, once that has lasted.
	Ahead time.Duration
	// Since is when the store last noticed that the underlying clock had been set, by the
	// store's clock. Zero if both agree.
	Since Instant
	// Until is when the store follows, if Held is set and the leap lasts.
	Until Instant
	// Leap is the latest step of the store's clock.
	Leap Leap
}

// Leap is a step of a store's clock or, if By is negative, a time during which nobody read it
// and that it doesn't count yet. Leases that began before it are judged by a time of their own,
// see [Leap.For].
type Leap struct {
	// At is the store's time before the step; zero if there was none.
	At Instant
	// By is how much longer a lease that began before the step seems to have lasted, by the
	// store's clock, than it has.
	By time.Duration
}

// For returns the time to judge a lease by that began at began, when the clock says now.
func (l Leap) For(began, now Instant) Instant {
	if l.At != 0 && began < l.At {
		return now.Add(-l.By)
	}
	return now
}
