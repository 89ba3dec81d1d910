package inbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/form"
	"github.com/semelhq/semel/store"
)

// Result is the outcome of one delivery of an item.
type Result struct {
	// Decision is the engine's decision about this delivery.
	Decision semel.Decision
	// Record names the item's record, or that of the item that has its key; zero if there is
	// none. Message is the state of its message; empty if it has none.
	Record  semel.ID
	Message store.MessageState
	// First and Content are the digests of both contents in a conflict. Parked is the record
	// with the parked item; zero if it isn't parked, or was parked as a held item before.
	First, Content semel.Fingerprint
	Parked         semel.ID
	// Told is the engine's decision, as an event.
	Told semel.Delivered
	// Err says why the item was not accepted, or that it is a conflict.
	Err error
}

// Event returns the result as an event for Answered of [semel.Events].
func (r *Result) Event() semel.Delivered {
	e := r.Told
	e.Err, e.Parked = r.Err, r.Parked != semel.ID{}
	refused, ours := errors.AsType[*Refusal](r.Err)
	coded, engines := errors.AsType[*semel.Error](r.Err)
	switch {
	case ours:
		e.Code = semel.Code(refused.Code)
	case engines:
		e.Code = coded.Code
	case r.Err != nil:
		e.Code = semel.CodeUnknown
	}
	return e
}

// Accept makes an item durable, or does it at once ([Item].Now), exactly once. A concurrent
// duplicate waits for it. If the error is nil, the sender has done its part: the item is in the
// store, now or since an earlier delivery, or was refused for good, or it is a conflict that
// the sender can't solve. After an error the sender has to deliver again. An item that is held
// because nobody knows whether it was done is an error. With [ParkConflict] it is also parked,
// so that it can be done again when the sender has given up.
func (b *Inbox[H]) Accept(ctx context.Context, it *Item[H]) (Result, error) {
	run := func(_ context.Context, x semel.Execution) error { return b.queue(x, it, semel.Message{}) }
	if it.Now != nil {
		// A crash in here leaves a lease that ends; then the item is held, or done again, as
		// OnAbandoned says. If it is held, the next delivery parks it.
		run = func(ctx context.Context, _ semel.Execution) error { return it.Now(ctx) }
	}
	first := it.Key
	ans, err := b.once(ctx, it, first, run)
	if apart := it.Attributes[AttributeApart]; ans.Decision == semel.Conflict && apart != "" && apart != ans.Record.Attributes[AttributeApart] {
		known, perr := b.parked(ctx, it, first, ans.Record)
		if perr != nil {
			return resultOf(it, &ans, perr), perr
		}
		if !known {
			it.Key = first + ":apart:" + apart
			ans, err = b.once(ctx, it, it.Key, run)
		}
	}
	res := resultOf(it, &ans, err)
	switch {
	case it.Now != nil && heldNow(&ans, err) && b.opts.OnConflict == ParkConflict:
		b.parkHeld(ctx, it, ans.Record, &res)
	case ans.Decision == semel.Conflict && b.opts.OnConflict == ParkConflict:
		err = b.park(ctx, it, first, &res)
	case ans.Decision == semel.Conflict, rejected(&ans):
		err = nil // the next delivery would get the same answer
	}
	return res, err
}

// Peek returns what [Inbox.Accept] would find, and accepts nothing: [semel.Execute] means that
// the item is new. It is for an item that must not be the first under its key.
func (b *Inbox[H]) Peek(ctx context.Context, it *Item[H]) (Result, error) {
	ans, err := b.engine.Internal().Peek(ctx, b.call(it, it.Key))
	if err == nil && ans.Decision != semel.Execute && !ans.Record.OnlyNamed() {
		err = ans.Err()
	}
	res := resultOf(it, &ans, err)
	if ans.Decision == semel.Conflict {
		err = nil
	}
	return res, err
}

func resultOf[H any](it *Item[H], ans *semel.Answer, err error) Result {
	res := Result{Decision: ans.Decision, Told: semel.Delivered{Decision: ans.Decision, Limit: ans.Limit}, Err: err}
	if ans.Record == nil {
		return res
	}
	res.Record = ans.Record.ID
	res.Told.ID, res.Told.Attempt, res.Told.Executed = ans.Record.ID, ans.Record.Attempt, ans.Record.Attributes[store.AttributeTrace]
	if len(ans.Record.Outbox) > 0 {
		res.Message = ans.Record.Outbox[0].State
	}
	if ans.Decision == semel.Conflict {
		res.First, res.Content = ans.Record.Fingerprint, it.Fingerprint
	}
	return res
}

// rejected reports whether the item was refused for good while it was accepted.
func rejected(ans *semel.Answer) bool {
	return ans.Record != nil && ans.Record.State == semel.Failed && ans.Record.Disposition == store.DispositionRejected
}

func (b *Inbox[H]) call(it *Item[H], key string) semel.Call {
	return semel.Call{
		Tenant: it.Tenant, Principal: b.opts.Principal, Scope: it.Scope, Operation: b.opts.Name, Key: key,
		Fingerprint: it.Fingerprint, Wait: b.opts.Budget, Door: b.opts.Door, Attributes: it.Attributes,
		SamePayload: func(first semel.Fingerprint) bool { return slices.Contains(it.Former, first) },
	}
}

// once runs something for an item under a key, exactly once.
func (b *Inbox[H]) once(ctx context.Context, it *Item[H], key string, run func(context.Context, semel.Execution) error) (semel.Answer, error) {
	ans, err := b.engine.Do(ctx, b.call(it, key), func(ctx context.Context, x semel.Execution) (semel.Result, error) {
		it.ID = store.ItemOf(x.ID())
		return semel.Result{}, run(ctx, x)
	})
	if err != nil && ans.Record != nil && ans.Record.State == semel.Completed && ans.Record.OnlyNamed() {
		err = nil // it was accepted, which is all that is left to know
	}
	return ans, err
}

// parkedKey returns the key for parking an item because its own key was used.
func parkedKey(key string, content semel.Fingerprint) string {
	_, digest, _ := strings.Cut(content.String(), ":")
	return key + ":conflict:" + digest
}

// parked reports whether the item was parked beside a record that doesn't tell items apart.
// Somebody may have had it done since, so it must not be done as another item now.
func (b *Inbox[H]) parked(ctx context.Context, it *Item[H], key string, first *semel.Record) (bool, error) {
	if first.Attributes[AttributeApart] != "" {
		return false, nil
	}
	for _, print := range append([]semel.Fingerprint{it.Fingerprint}, it.Former...) {
		ans, err := b.engine.Internal().Peek(ctx, b.call(it, parkedKey(key, print)))
		if err != nil || ans.Decision != semel.Execute {
			return true, err
		}
	}
	return false, nil
}

// park stores an item whose key came with other content before. The error is nil once it is
// stored.
func (b *Inbox[H]) park(ctx context.Context, it *Item[H], key string, res *Result) error {
	if len(it.Body) > MaxBody {
		res.Err = Refuse(CodeTooLong, "its id was used with another content, and it is longer than the %d bytes that can be kept for somebody to decide", MaxBody)
		return res.Err
	}
	why := &store.Failure{
		Code:    codeConflict,
		Message: fmt.Sprintf("the id was used before with another content, %v; this is %v", res.First, res.Content),
	}
	// The key contains the content's digest, so each content is parked once, however often it comes.
	ans, err := b.once(ctx, it, parkedKey(key, it.Fingerprint), func(_ context.Context, x semel.Execution) error {
		return b.queue(x, it, semel.Message{State: store.MessageParked, Failure: why})
	})
	if err != nil {
		res.Err = err
	} else {
		res.Parked = ans.Record.ID
	}
	return err
}

// queue puts the item into the outbox of its record, as a message in the state of m.
func (b *Inbox[H]) queue(x semel.Execution, it *Item[H], m semel.Message) error {
	m.Name, m.Destination, m.ContentType, m.Order = "item", b.opts.Destination, "application/octet-stream", it.Order
	var err error
	if m.Payload, err = it.encode(); err == nil {
		err = semel.Send(x, m)
	}
	if err != nil {
		return semel.Aborted(err)
	}
	// A crash before the outcome is written leaves a lease that ends, and a sender that
	// isn't acknowledged. A crash after it leaves a message in the outbox, due or parked,
	// and the sender's next delivery is a duplicate.
	return nil
}

// Work hands an accepted item to the handler: payload is the content of a message to the
// inbox's destination. It returns nil once the item is handled. Park the message if the error
// is a [*Refusal]; after any other error, call Work again, and after a [*Later] when it says.
func (b *Inbox[H]) Work(ctx context.Context, payload []byte) error {
	it, err := decode[H](payload)
	if err != nil {
		return err
	}
	if it.of != nil {
		return b.again(ctx, it)
	}
	// A crash in here leaves the message due, and the handler gets the item again.
	return b.opts.Handle(ctx, it)
}

// line is the first line of an item in the outbox; its body follows as received.
type line[H any] struct {
	ID         string    `json:"id"`
	Tenant     string    `json:"tenant"`
	Scope      string    `json:"scope,omitempty"`
	Key        string    `json:"key"`
	ReceivedAt time.Time `json:"received_at"`
	// The held record, and its content; lines from before it was noted have none.
	Of      *semel.ID         `json:"of,omitempty"`
	Content semel.Fingerprint `json:"content,omitzero"`
	Head    H                 `json:"head"`
}

func (it *Item[H]) encode() ([]byte, error) {
	first, err := json.Marshal(line[H]{it.ID, it.Tenant, it.Scope, it.Key, it.ReceivedAt, it.of, it.content, it.Head})
	return append(append(first, '\n'), it.Body...), err
}

func decode[H any](payload []byte) (*Item[H], error) {
	first, body, whole := bytes.Cut(payload, []byte("\n"))
	var l line[H]
	err := form.Read(first, 1, &l)
	if errors.Is(err, form.ErrNewer) {
		return nil, fmt.Errorf("the message of an inbox: %w", err) // another node can handle it
	}
	if err != nil || !whole || l.ID == "" || l.Key == "" {
		return nil, &Refusal{CodeUnreadable, errors.New("the message is not one of an inbox")}
	}
	return &Item[H]{ID: l.ID, Tenant: l.Tenant, Scope: l.Scope, Key: l.Key, ReceivedAt: l.ReceivedAt, Head: l.Head, Body: body, of: l.Of, content: l.Content}, nil
}
