package semel

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/semelhq/semel/store"
)

// messageSteps are the legal changes of a message's state.
var messageSteps = map[store.MessageState][]store.MessageState{
	store.MessagePending: {store.MessagePending, store.MessageDelivered, store.MessageParked},
	store.MessageParked:  {store.MessagePending, store.MessageDiscarded, store.MessageDelivered},
}

// Bounds of an outbox.
const (
	// MaxMessages is how many messages one call can send.
	MaxMessages = 100
	// MaxOutbox bounds the payloads of one call's messages together, in bytes.
	MaxOutbox = 1 << 20
)

// Send queues a message to be sent if the attempt completes (a transactional outbox). Nothing
// is written yet: the messages become durable in the same write as the result. If the attempt
// ends in another way they are dropped; if it is held and settled as completed, see
// [Settlement].Messages. A message with the state [store.MessageParked] waits for an operator
// from the start, and its Failure says why; every other is pending. Sending the same name
// twice is [CodeInvalidCall]; an attempt of a read-only call, which leaves no record, can't
// send.
func (a *Attempt) Send(m Message) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended != evNone || a.pending != nil && a.pending.ending != evNone {
		return &Error{Code: CodeAlreadyEnded, Message: "the attempt has ended"}
	}
	if a.unrecorded {
		return &Error{Code: CodeUnsupported, Message: "a read-only call has no record to keep messages in"}
	}
	var err error
	a.outbox, err = addMessage(a.outbox, m, a.claim.ID, a.claim.Origin)
	return err
}

// Send queues a message to be sent if the call completes; see [Attempt.Send].
// [CodeUnsupported] means that the holder isn't in this process.
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
		if s == "" || len(s) > store.MaxNameLen || !store.ValidText(s) {
			return bad("%s must have 1 to %d bytes of UTF-8 without NUL", field, store.MaxNameLen)
		}
	}
	for field, s := range map[string]string{"ContentType": m.ContentType, "Order": m.Order} {
		if len(s) > store.MaxNameLen || !store.ValidText(s) {
			return bad("%s is longer than %d bytes, not valid UTF-8 or has a NUL byte", field, store.MaxNameLen)
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
	if m.State == store.MessageParked {
		m.Failure = kept(m.Failure)
	} else {
		m.State, m.Failure = store.MessagePending, nil
	}
	m.Tries, m.NextAt, m.SettledAt = 0, 0, 0
	m.Payload = slices.Clone(m.Payload)
	return append(outbox, m), nil
}

// addOutbox puts the messages into a record that is being completed.
func addOutbox(r *Record, outbox []Message, now store.Instant) {
	if len(outbox) == 0 {
		return
	}
	r.Outbox = slices.Clone(outbox)
	for i := range r.Outbox {
		m := &r.Outbox[i]
		m.CreatedAt, m.NextAt = now, now
		if m.State == store.MessageParked {
			m.NextAt, m.SettledAt = 0, now
		}
	}
	r.NextAt = nextLook(r)
}

// SettleMessage records what happened to a message of a completed call. Recording the
// same again is harmless. [CodeIllegalTransition] means that the message's state doesn't
// allow the step; [ErrNotFound] that there is no such record or message.
func (in Internal) SettleMessage(ctx context.Context, id ID, messageID string, f store.MessageFinding) (Record, error) {
	// A crash before this write leaves the message as it was: a sweep finds it due, and it
	// is delivered, perhaps again, under the same id. A crash after it leaves nothing to do.
	rec, err := in.engine.change(ctx, id, store.ChangeMessage, func(cur *Record, now store.Instant) (*Record, error) {
		return settledMessage(cur, messageID, f, now)
	})
	return *rec, err
}

// settledMessage is the pure part of SettleMessage. It returns nil if nothing changes.
func settledMessage(cur *Record, messageID string, f store.MessageFinding, now store.Instant) (*Record, error) {
	i := slices.IndexFunc(cur.Outbox, func(m Message) bool { return m.ID == messageID })
	if i < 0 {
		return nil, ErrNotFound
	}
	old := &cur.Outbox[i]
	if old.State == f.State && f.State != store.MessagePending || f.Untried && old.Tries > 0 {
		return nil, nil
	}
	if !slices.Contains(messageSteps[old.State], f.State) || old.State == store.MessageParked && f.State == store.MessagePending && !f.Replay {
		return nil, &Error{Code: CodeIllegalTransition, Message: fmt.Sprintf("a message that is %s can't become %s", old.State, f.State)}
	}
	next, err := successor(cur, evMessage, now)
	if err != nil {
		return nil, err
	}
	next.Outbox = slices.Clone(cur.Outbox)
	m := &next.Outbox[i]
	m.State = f.State
	if f.State != store.MessagePending || f.Failure != nil || f.Replay { // postponing keeps the failure of the last try
		m.Failure = kept(f.Failure)
	}
	m.NextAt, m.SettledAt = 0, now
	if f.State == store.MessagePending {
		m.NextAt, m.SettledAt = now.Add(f.RetryAfter), 0
	}
	switch {
	case f.Replay:
		m.Tries = 0
	case f.State != store.MessageDiscarded && f.Failure != nil:
		m.Tries++
	}
	next.NextAt = nextLook(next)
	return next, nil
}

// SetDispatcher makes dispatch deliver the messages that this engine's attempts send and
// its sweeps find; see package dispatch. Without one, an engine leaves them to other
// engines.
//
// dispatch gets a record that has messages to deliver. Every engine that sweeps the
// store calls its own, again and again, until [Internal.SettleMessage] settles them. It must
// return at once, and may drop the record if it has no room for it, because it gets it
// again.
func (in Internal) SetDispatcher(dispatch func(rec *Record)) {
	in.engine.dispatcher.Store(&dispatch)
}

// dispatch gives a record with messages to the dispatcher, if there is one. Until they
// are settled, the messages stay due.
func (e *Engine) dispatch(rec *Record) {
	if f := e.dispatcher.Load(); f != nil {
		(*f)(rec)
	}
}
