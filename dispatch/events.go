package dispatch

import (
	"time"

	"github.com/semelhq/semel/store"
)

// Events lets you observe a dispatcher, for logs and metrics. Nil functions are skipped.
// The dispatcher calls the functions synchronously, from many goroutines at once, so
// they should return quickly.
type Events struct {
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
