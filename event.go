package semel

import "time"

// Events is the one place from which an engine is observed: logs, metrics and
// live views hang here. Nil functions are skipped. They are called in line, by
// many goroutines at once, and should return quickly; they can change nothing.
type Events struct {
	// Decided: a delivery got its decision.
	Decided func(DecidedEvent)
	// Ended: an attempt ended, or was found abandoned or held.
	Ended func(EndedEvent)
	// LeaseLost: a holder was told to stop.
	LeaseLost func(LeaseLostEvent)
	// StoreFailed: a call to the store returned an error, so its result was
	// unknown for the moment.
	StoreFailed func(StoreFailedEvent)
	// Purged: expired records were deleted.
	Purged func(PurgedEvent)
	// Swept: a sweep by Run has ended.
	Swept func(SweptEvent)
	// Unswept: this engine has taken calls for so long, a minute, and nothing has swept
	// here. Told once. Without [Engine.Run], here or in another process on the same
	// store, expired records are never removed, and abandoned calls wait for their next
	// delivery.
	Unswept func(time.Duration)
	// Reconciled: a reconciler was asked about a held record, and what it said is
	// recorded.
	Reconciled func(ReconciledEvent)
	// ReleaseDropped: a claim whose caller was told that the store is unavailable
	// will not be released, because too many wait for that. If it arrived, its
	// call is taken for an abandoned one when its lease ends.
	ReleaseDropped func(ID)
}

// DecidedEvent tells what one delivery got.
type DecidedEvent struct {
	ID       ID
	Decision Decision
	State    State
	Attempt  int
	Fence    int64
	// RetryAfter is what the caller was told; zero if nothing.
	RetryAfter time.Duration
	// Waited is how long the delivery waited for another's outcome.
	Waited time.Duration
	At     time.Time
}

// EndedEvent tells how an attempt ended.
type EndedEvent struct {
	ID ID
	// Disposition is empty when the record is held.
	Disposition Disposition
	// Held is why the record is held, if it is.
	Held    string
	Attempt int
	Fence   int64
	// Took is the time from claim to end, by the store's clock.
	Took time.Duration
	// By is "holder", "reaper", "reconciler" or "operator".
	By string
	// Reason is the words of the operator who settled a held record.
	Reason string
	At     time.Time
}

// LeaseLostEvent tells that a handler's context was cancelled.
type LeaseLostEvent struct {
	ID      ID
	Attempt int
	Fence   int64
	// Err is why: somebody else changed the record, or the store could not be
	// reached before the lease ended.
	Err error
}

// StoreFailedEvent tells of one failed call to the store.
type StoreFailedEvent struct {
	ID ID
	// Call is "apply", "get", "now", "due" or "purge".
	Call string
	Err  error
	// Try counts the calls of one write, from 1.
	Try int
}

// SweptEvent tells what a sweep did.
type SweptEvent struct {
	Swept
	// Err is what kept it from attending to some or all due records; the next
	// sweep tries again.
	Err error
}

// ReconciledEvent tells of one question to a reconciler.
type ReconciledEvent struct {
	ID ID
	// Took is the time from the question to the end of what came of it.
	Took time.Duration
	// Err is why there is no answer, or why it could not be recorded. The record
	// stays held and is asked about again.
	Err error
}

// PurgedEvent tells of one batch of expired records, or of one record that an
// operator purged.
type PurgedEvent struct {
	Count int
	// ID, By and Reason are set where an operator did it.
	ID     ID
	By     string
	Reason string
}
