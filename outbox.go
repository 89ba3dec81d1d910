package semel

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
)

// Message is something that a completed call sends: it is part of the record, so
// that it exists if and only if the call completed (IDS-XI.S2). Package dispatch
// delivers messages at least once, under an id that never changes.
type Message struct {
	// ID is what the receiver deduplicates by. It is derived from the call and
	// the name; Send fills it in.
	ID string `json:"id"`
	// Name is unique within the call. Required.
	Name string `json:"name"`
	// Destination names the receiver, as the dispatcher knows it. Required.
	Destination string `json:"destination"`
	// ContentType and Payload are what is delivered.
	ContentType string `json:"content_type,omitempty"`
	Payload     []byte `json:"payload,omitzero"`
	// Order asks for messages of one destination and this key to be delivered in
	// the order in which their calls completed. Empty: in any order.
	Order string `json:"order,omitempty"`

	// State is where the message stands.
	State MessageState `json:"state"`
	// Tries counts the deliveries that were tried and did not succeed since the
	// message was made or last replayed.
	Tries int `json:"tries,omitempty"`
	// NextAt is when it is tried next; zero unless pending.
	NextAt Instant `json:"next_at,omitzero"`
	// CreatedAt is when the call completed, SettledAt when the message was
	// delivered, parked or discarded.
	CreatedAt Instant `json:"created_at"`
	SettledAt Instant `json:"settled_at,omitzero"`
	// Failure is why the last delivery did not succeed.
	Failure *Failure `json:"failure,omitempty"`
}

// MessageState is where a message stands.
type MessageState string

// The states of a message.
const (
	MessagePending   MessageState = "pending"   // to be delivered
	MessageDelivered MessageState = "delivered" // the receiver has taken it
	MessageParked    MessageState = "parked"    // given up until somebody replays or discards it
	MessageDiscarded MessageState = "discarded" // by an operator's word
)

// messageSteps are the changes of a message's state that are legal.
var messageSteps = map[MessageState][]MessageState{
	MessagePending: {MessagePending, MessageDelivered, MessageParked},
	MessageParked:  {MessagePending, MessageDiscarded, MessageDelivered},
}

// Bounds of an outbox.
const (
	// MaxMessages is how many messages one call can send.
	MaxMessages = 100
	// MaxOutbox bounds the payloads of one call's messages together, in bytes.
	MaxOutbox = 1 << 20
)

// Send adds a message to what the attempt sends if it completes. Nothing is
// written yet: the messages become durable in the same write as the result. Where
// the attempt ends in another way they are dropped; for one that is held and settled
// as completed see [Settlement].Messages. Sending the same name twice is
// [CodeInvalidCall]; an attempt of a read-only call, which leaves no record, can't
// send.
func (a *Attempt) Send(m Message) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended != evNone || a.doubt != nil && a.doubt.ending != evNone {
		return &Error{Code: CodeAlreadyEnded, Message: "the attempt has ended"}
	}
	if a.unrecorded {
		return errSendUnrecorded()
	}
	var err error
	a.outbox, err = addMessage(a.outbox, m, a.claim.ID, a.claim.Origin)
	return err
}

// Send is [Attempt.Send].
func (a *TxAttempt) Send(m Message) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended != nil {
		return &Error{Code: CodeAlreadyEnded, Message: "the attempt has ended"}
	}
	if a.unrecorded {
		return errSendUnrecorded()
	}
	var err error
	a.outbox, err = addMessage(a.outbox, m, a.claim.ID, a.claim.Origin)
	return err
}

func errSendUnrecorded() error {
	return &Error{Code: CodeUnsupported, Message: "a read-only call has no record to keep messages in"}
}

// Send adds a message to what the call sends if it completes; see [Attempt.Send].
// [CodeUnsupported] means that the holder is not in this process.
func Send(x Execution, m Message) error {
	s, ok := x.(interface{ Send(Message) error })
	if !ok {
		return &Error{Code: CodeUnsupported, Message: "this execution can't send messages"}
	}
	return s.Send(m)
}

func addMessage(outbox []Message, m Message, id ID, origin int64) ([]Message, error) {
	bad := func(format string, args ...any) ([]Message, error) {
		return outbox, &Error{Code: CodeInvalidCall, Message: fmt.Sprintf("message %q: ", m.Name) + fmt.Sprintf(format, args...)}
	}
	for field, s := range map[string]string{"Name": m.Name, "Destination": m.Destination} {
		if s == "" || len(s) > maxNameLen || !validText(s) {
			return bad("%s must have 1 to %d bytes of UTF-8 without NUL", field, maxNameLen)
		}
	}
	for field, s := range map[string]string{"ContentType": m.ContentType, "Order": m.Order} {
		if len(s) > maxNameLen || !validText(s) {
			return bad("%s is longer than %d bytes, not valid UTF-8 or has a NUL byte", field, maxNameLen)
		}
	}
	if strings.ContainsFunc(m.ContentType, unicode.IsControl) {
		return bad("ContentType has control characters, which no header can carry")
	}
	size := len(m.Payload)
	for i := range outbox {
		if outbox[i].Name == m.Name {
			return bad("it was sent already")
		}
		size += len(outbox[i].Payload)
	}
	if len(outbox) >= MaxMessages {
		return bad("the call sends %d messages already", MaxMessages)
	}
	if size > MaxOutbox {
		return bad("the messages of the call have %d bytes together, more than %d", size, MaxOutbox)
	}
	m.ID = "msg_" + derivedKey("semel-message-1", id, origin, m.Name)
	m.State, m.Tries, m.NextAt, m.SettledAt, m.Failure = MessagePending, 0, 0, 0, nil
	m.Payload = slices.Clone(m.Payload)
	return append(outbox, m), nil
}

// send puts the messages into a record that is being completed.
func (r *Record) send(outbox []Message, now Instant) {
	if len(outbox) == 0 {
		return
	}
	r.Outbox = slices.Clone(outbox)
	for i := range r.Outbox {
		r.Outbox[i].CreatedAt, r.Outbox[i].NextAt = now, now
	}
	r.NextAt = r.nextLook()
}

// undelivered reports whether a message is left to be delivered, or parked.
func (r *Record) undelivered() bool {
	return slices.ContainsFunc(r.Outbox, func(m Message) bool {
		return m.State == MessagePending || m.State == MessageParked
	})
}

// MessageFinding says what became of a message.
type MessageFinding struct {
	// State is delivered or parked by a dispatcher, or pending to try again; and
	// by an operator discarded, or pending with Replay, for one that is parked.
	State MessageState
	// RetryAfter is when to try again, for pending.
	RetryAfter time.Duration
	// Failure is why a delivery did not succeed.
	Failure *Failure
	// Replay starts the count of tries again. Only with it does a parked message
	// become pending: a dispatcher that is late does not bring it back.
	Replay bool
	// Untried leaves a message alone that was tried since it was made or replayed.
	Untried bool
}

// SettleMessage records what became of a message of a completed call. What has
// been said of it already may be said again. [CodeIllegalTransition] means that the
// message has another state, from which the step is not possible; [ErrNotFound]
// that there is no such record or message.
func (e *Engine) SettleMessage(ctx context.Context, id ID, messageID string, f MessageFinding) (Record, error) {
	for range maxClaims {
		rec, err := e.get(ctx, id)
		if err != nil {
			return Record{}, e.storeError("get", id, err)
		}
		now, err := e.now(ctx)
		if err != nil {
			return Record{}, err
		}
		next, err := settledMessage(&rec, messageID, f, now)
		if err != nil || next == nil {
			return rec, err
		}
		v := e.stamp(&e.policyOf(id.Operation).Operation, &rec, next, ChangeMessage)
		// A crash before this write leaves the message as it was: whoever finds it
		// due delivers it, again perhaps, under the same id. A crash after it
		// leaves nothing to do.
		_, applied, err := e.apply(ctx, v)
		if err != nil {
			return rec, err
		}
		if applied {
			return *next, nil
		}
	}
	return Record{}, &Error{Code: CodeUnknown, Message: "the record changes too fast"}
}

// settledMessage is the pure part of SettleMessage. It returns nil where there is
// nothing to change.
func settledMessage(cur *Record, messageID string, f MessageFinding, now Instant) (*Record, error) {
	i := slices.IndexFunc(cur.Outbox, func(m Message) bool { return m.ID == messageID })
	if i < 0 {
		return nil, ErrNotFound
	}
	old := &cur.Outbox[i]
	if old.State == f.State && f.State != MessagePending || f.Untried && old.Tries > 0 {
		return nil, nil
	}
	if !slices.Contains(messageSteps[old.State], f.State) || old.State == MessageParked && f.State == MessagePending && !f.Replay {
		return nil, &Error{Code: CodeIllegalTransition, Message: fmt.Sprintf("a message that is %s can't become %s", old.State, f.State)}
	}
	next, err := successor(cur, evMessage, now)
	if err != nil {
		return nil, err
	}
	next.Outbox = slices.Clone(cur.Outbox)
	m := &next.Outbox[i]
	m.State = f.State
	if f.State != MessagePending || f.Failure != nil || f.Replay { // to put it off says nothing about the last try
		m.Failure = f.Failure.kept()
	}
	m.NextAt, m.SettledAt = 0, now
	if f.State == MessagePending {
		m.NextAt, m.SettledAt = now.Add(f.RetryAfter), 0
	}
	switch {
	case f.Replay:
		m.Tries = 0
	case f.State != MessageDiscarded && f.Failure != nil:
		m.Tries++
	}
	next.NextAt = next.nextLook()
	return next, nil
}

// Dispatcher delivers messages; see package dispatch.
type Dispatcher interface {
	// Dispatch is told of a record that has messages to deliver. It may be told of
	// the same one again and again, by every engine that sweeps the store, until
	// they are settled by [Engine.SettleMessage]. It returns at once; what it has no
	// room for now it is told of again.
	Dispatch(rec *Record)
}

// SetDispatcher makes d deliver the messages that this engine's attempts send and
// its sweeps find. An engine without one leaves them to others.
func (e *Engine) SetDispatcher(d Dispatcher) {
	e.dispatcher.Store(&d)
}

// dispatch offers a record with messages to the dispatcher, if there is one. What it
// has no room for stays due.
func (e *Engine) dispatch(rec *Record) {
	if d := e.dispatcher.Load(); d != nil {
		(*d).Dispatch(rec)
	}
}
