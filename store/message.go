package store

// Message is something that a completed call sends: it is part of the record, so
// that it exists if and only if the call completed (IDS-XI.S2). Package dispatch
// delivers messages at least once, under an id that never changes.
type Message struct {
	// ID is what the receiver deduplicates by. It is derived from the call and
	// the name; Send fills it in.
	ID string
	// Name is unique among the call's messages. Required.
	Name string
	// Destination names the receiver, as the dispatcher knows it. Required.
	Destination string
	// ContentType and Payload are the delivered content.
	ContentType string
	Payload     []byte
	// Order asks for messages of one destination and this key to be delivered in
	// the order in which their calls completed. Empty: in any order.
	Order string

	// State is where the message stands.
	State MessageState
	// Tries counts the failed deliveries since the message was created or last replayed.
	Tries int
	// NextAt is when it is tried next; zero if it isn't pending.
	NextAt Instant
	// CreatedAt is when the call completed, SettledAt when the message was
	// delivered, parked or discarded.
	CreatedAt Instant
	SettledAt Instant
	// Failure is why the last delivery did not succeed.
	Failure *Failure
}

// MessageState is where a message stands.
type MessageState string

// The states of a message.
const (
	MessagePending   MessageState = "pending"   // to be delivered at NextAt
	MessageDelivered MessageState = "delivered" // the receiver has it
	MessageParked    MessageState = "parked"    // not tried until an operator replays or discards it (a dead letter)
	MessageDiscarded MessageState = "discarded" // by an operator
)
