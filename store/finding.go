package store

import "time"

// EffectFinding says what happened to one effect.
type EffectFinding struct {
	Name string
	// State is [EffectConfirmed] or [EffectRefuted].
	State   EffectState
	Result  Result
	Failure *Failure
}

// MessageFinding says what happened to a message.
type MessageFinding struct {
	// State is delivered, parked (a dead letter), or pending to try again, as a dispatcher
	// reports it. An operator may discard a parked message, or make it pending with Replay.
	State MessageState
	// RetryAfter is when to try again, for pending.
	RetryAfter time.Duration
	// Failure is why a delivery failed.
	Failure *Failure
	// Replay starts the count of tries again. A parked message becomes pending only
	// with Replay, so that a late dispatcher can't bring it back.
	Replay bool
	// Untried changes the message only if nobody has tried it since its creation or last
	// replay.
	Untried bool
}
