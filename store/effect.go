package store

// EffectState is the state of one effect in the ledger.
type EffectState string

// The states of an effect.
const (
	// EffectStarted: the intent is durable; whether the call reached the
	// provider is not known. Without a result it is never called again.
	EffectStarted EffectState = "started"
	// EffectConfirmed: it happened and its result is recorded.
	EffectConfirmed EffectState = "confirmed"
	// EffectRefuted: it did not happen. With a Failure the provider refused for
	// good and the refusal is replayed; without one it may be started again.
	EffectRefuted EffectState = "refuted"
)

// EffectRecord is one external call in the ledger.
type EffectRecord struct {
	// Name is unique within the call.
	Name string
	// Key is the idempotency key that the provider gets. It is the same in all attempts.
	Key   string
	State EffectState
	// Fence is the fence of the attempt that started it last.
	Fence int64
	// Result is what the effect returned, once confirmed.
	Result Result
	// Failure is the provider's refusal, once refuted for good.
	Failure   *Failure
	StartedAt Instant
	SettledAt Instant
	// Settled says who settled the effect, if that wasn't the holder of an attempt. Nil
	// otherwise.
	Settled *Settled
}
