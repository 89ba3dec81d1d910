package dispatch

import (
	"context"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// Events lets you observe a dispatcher, for logs and metrics. Nil functions are skipped.
// The dispatcher calls the functions synchronously, from many goroutines at once, so
// they should return quickly.
type Events struct {
	// Sending: a try begins. Destination, MessageID, Tenant, Call, Executed and Try. It
	// returns ctx, or a context made from it, for the [Sender]: the place for a span. The
	// event about how the try ended has it as Context.
	Sending func(ctx context.Context, e DeliveryEvent) context.Context
	// Delivered: a receiver has accepted a message, and that is durable.
	Delivered func(DeliveryEvent)
	// Failed: a try failed. The message is tried again at Next.
	Failed func(DeliveryEvent)
	// Parked: a message isn't tried again until somebody replays or discards it.
	Parked func(DeliveryEvent)
	// Breaker: the circuit breaker of a destination opened or closed.
	Breaker func(destination string, open bool)
	// Trouble: something other than a receiver failed, such as the store. The
	// dispatcher tries again.
	Trouble func(error)
}

// DeliveryEvent describes one try, or a message that was parked without one.
type DeliveryEvent struct {
	Destination string
	MessageID   string
	// Tenant is that of the call that sent the message.
	Tenant string
	// Call is the one that sent the message, and Executed its trace context, as its record
	// keeps it; empty if it wasn't traced.
	Call     semel.ID
	Executed string
	// Context is the context that Sending returned; nil without one, or without a try.
	Context context.Context
	// Try counts the tries, from 1. It is zero if an earlier try turned out to have
	// succeeded.
	Try int
	// Took is how long the receiver needed.
	Took time.Duration
	// Waited is the time from the completion of the call to now.
	Waited time.Duration
	// Next is when the message is tried again.
	Next store.Instant
	// Err is why the try failed.
	Err error
}
