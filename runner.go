package semel

import (
	"context"

	"github.com/semelhq/semel/store"
)

// Doer runs calls: an [Engine] in this process, or the client of a service. If your
// program takes a Doer, you can switch from one to the other where you make it.
type Doer interface {
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
	StartEffect(ctx context.Context, name string) (store.EffectRecord, error)
	// SettleEffect is [Attempt.SettleEffect].
	SettleEffect(ctx context.Context, f store.EffectFinding) error
}

var (
	_ Execution = (*Attempt)(nil)
	_ Doer    = (*Engine)(nil)
)
