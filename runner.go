package semel

import "context"

// Runner runs calls: an [Engine] in this process, or the client of a service. A
// program that takes one moves from the first to the second by changing how it is
// made.
type Runner interface {
	// Do is [Engine.Do].
	Do(ctx context.Context, call Call, fn func(ctx context.Context, x Execution) (Result, error)) (Answer, error)
}

// Execution is the right to execute one call, as a handler sees it: an [Attempt]
// of an engine in this process, or of a service. Its methods may be called
// concurrently.
type Execution interface {
	// ID is [Attempt.ID].
	ID() ID
	// Fence is [Attempt.Fence].
	Fence() int64
	// Number is [Attempt.Number].
	Number() int
	// Renew is [Attempt.Renew].
	Renew(ctx context.Context) error
	// StartEffect is [Attempt.StartEffect].
	StartEffect(ctx context.Context, name string) (EffectRecord, error)
	// SettleEffect is [Attempt.SettleEffect].
	SettleEffect(ctx context.Context, f EffectFinding) error
}

// Records is what people do with records: of an [Engine] in this process, or of a
// service.
type Records interface {
	// Lookup is [Engine.Lookup].
	Lookup(ctx context.Context, id ID) (Record, error)
	// Search is [Engine.Search].
	Search(ctx context.Context, q Query) (Page, error)
	// Settle is [Engine.Settle].
	Settle(ctx context.Context, id ID, s Settlement, reason string) (Record, error)
	// Purge is [Engine.Purge].
	Purge(ctx context.Context, id ID, r Removal) error
}

var (
	_ Execution = (*Attempt)(nil)
	_ Runner    = (*Engine)(nil)
	_ Records   = (*Engine)(nil)
)
