package store

import (
	"context"
	"time"
)

// Timekeeper explains the reading of a store's clock. Without it, the engine assumes that the
// clock never leaps.
//
// Now of such a store runs by a clock that nobody can set, and doesn't follow at once where
// the clock of the machine or server is set: a record that expires early makes an effect
// happen twice, and one that stays longer harms nobody. It follows a leap ahead, in one step,
// once the leap has lasted as long as it is long, at most an hour; and it never goes back.
type Timekeeper interface {
	// ClockState is the state of the clock at a time that Now has returned. The engine calls
	// it for most deliveries, so it doesn't ask a server.
	ClockState(now Instant) ClockState
	// AcceptClock ends the wait: Now follows a leap ahead within seconds. It returns the
	// state afterwards. Where Now waits for nothing, it changes nothing.
	AcceptClock(ctx context.Context) (ClockState, error)
}

// ClockState is the state of a store's clock at a time.
type ClockState struct {
	// Held is how far the calendar may be ahead of the store's clock: a leap of the underlying
	// clock that the store doesn't follow yet. Records made meanwhile live that much longer,
	// or they would expire when it does.
	Held time.Duration
	// Back is how far somebody put back the underlying clock. Zero if Held is set.
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

// Leap is a step of a store's clock, or, where By is negative, a time for which nobody looked
// at it and which the clock doesn't count yet. Leases that began before it are judged by
// another time than others, see [Leap.For].
type Leap struct {
	// At is the store's time before the step; zero if there was none.
	At Instant
	// By is how much longer the store's clock says that a lease has lasted which began before
	// the step than it has.
	By time.Duration
}

// For is the time to judge a lease by, if it began at began and the clock says now.
func (l Leap) For(began, now Instant) Instant {
	if l.At != 0 && began < l.At {
		return now.Add(-l.By)
	}
	return now
}
