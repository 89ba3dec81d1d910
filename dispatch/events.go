package dispatch

import (
	"time"

	"github.com/semelhq/semel"
)

// Events is where a dispatcher is observed: logs and metrics hang here. Nil
// functions are skipped. They are called in line, by many goroutines at once, and
// should return quickly.
type Events struct {
	// Delivered: a receiver has taken a message, and that is durable.
	Delivered func(DeliveryEvent)
	// Failed: a try was in vain. The message is tried again at Next.
	Failed func(DeliveryEvent)
	// Parked: a message was given up until somebody replays or discards it.
	Parked func(DeliveryEvent)
	// Breaker: the tries at a destination were stopped, or go on.
	Breaker func(destination string, open bool)
	// Trouble: something other than a receiver failed, such as the store. It is
	// tried again.
	Trouble func(error)
}

// DeliveryEvent tells of one try, or of a message that was parked without one.
type DeliveryEvent struct {
	Destination string
	MessageID   string
	// Tenant is that of the call that sent the message.
	Tenant string
	// Try counts the tries, from 1. It is zero where it was found out afterwards
	// that an earlier try had succeeded.
	Try int
	// Took is how long the receiver needed.
	Took time.Duration
	// Waited is the time from the completion of the call to now.
	Waited time.Duration
	// Next is when the message is tried again.
	Next semel.Instant
	// Err is why the try was in vain.
	Err error
}
