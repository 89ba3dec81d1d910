package webhook

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// take makes one event durable, or has it handled, once. A concurrent duplicate waits for
// it. It returns nil if the sender has done its part.
func (r *Receiver) take(ctx context.Context, e *Event) error {
	e.Tenant, e.ReceivedAt = r.opts.Tenant, r.now().UTC()
	run := r.send
	if r.opts.Mode == Sync {
		run = r.handle
	}
	first := e.Key
	ans, err := r.once(ctx, e, first, run)
	if ans.Decision == semel.Conflict && e.apart != "" && ans.Record.Attributes[attributeApart] != e.apart {
		e.Key = first + ":apart:" + e.apart
		ans, err = r.once(ctx, e, e.Key, run)
	}
	if ans.Decision == semel.Conflict {
		return r.conflict(ctx, e, first, &ans)
	}
	r.report(Seen{Event: e, Decision: ans.Decision, Err: err, Record: recordOf(&ans)})
	// An event that is refused for good would be refused again.
	if settled(&ans) {
		return nil
	}
	return err
}

// attributeApart keeps by what an event is told from others with its id. One that is not
// told apart and has another content isn't another event: it is a conflict.
const attributeApart = "apart"

// once runs something for an event under a key, once.
func (r *Receiver) once(ctx context.Context, e *Event, key string, run func(context.Context, semel.Execution, *Event) error) (semel.Answer, error) {
	call := semel.Call{
		Tenant: e.Tenant, Principal: Principal, Scope: e.Scope, Operation: r.Destination(), Key: key,
		Fingerprint: e.print, Wait: r.opts.Budget, Door: "webhook",
	}
	call.Attributes = store.Attributes{}
	if e.name != "" {
		call.Attributes[store.AttributeEventID] = e.name // people have it from the sender's pages
	}
	if e.apart != "" {
		call.Attributes[attributeApart] = e.apart
	}
	return r.engine.Do(ctx, call, func(ctx context.Context, x semel.Execution) (semel.Result, error) {
		digest := x.ID().Digest()
		e.ID = "evt_" + hex.EncodeToString(digest[:16])
		return semel.Result{}, run(ctx, x, e)
	})
}

// conflict deals with an event whose key was used with another content (MAP-HOOK.4). The
// sender could do nothing about it but deliver it again, so it gets 2xx, and the event
// waits for an operator, in a record of its own.
func (r *Receiver) conflict(ctx context.Context, e *Event, key string, ans *semel.Answer) error {
	seen := Seen{Event: e, Decision: semel.Conflict, Err: ans.Err(), Record: recordOf(ans), Content: e.print, First: ans.Record.Fingerprint}
	if r.opts.OnConflict == DropConflict {
		r.report(seen)
		return nil
	}
	if len(e.Body) > MaxEvent {
		seen.Err = refusal(codeTooLong, "its id was used with another content, and it is longer than the %d bytes that can be kept for somebody to decide", MaxEvent)
		r.report(seen)
		return seen.Err
	}
	why := &store.Failure{
		Code:    codeConflict,
		Message: fmt.Sprintf("the id was used before with another content, %v; this is %v", seen.First, seen.Content),
	}
	// The key has the content, so each content is parked once, however often it comes.
	parked, err := r.once(ctx, e, key+":conflict:"+digestOf(e.print), func(_ context.Context, x semel.Execution, e *Event) error {
		return r.queue(x, e, semel.Message{State: store.MessageParked, Failure: why})
	})
	if err == nil {
		seen.Parked = recordOf(&parked)
	} else {
		seen.Err = err
	}
	r.report(seen)
	return err
}

// codeConflict is why a message is parked whose event has the id of another.
const codeConflict = "conflict"

// recordOf names the record that an answer is about; it is zero if there is none.
func recordOf(ans *semel.Answer) semel.ID {
	if ans.Record == nil {
		return semel.ID{}
	}
	return ans.Record.ID
}

// settled reports whether the event's attempt was rejected, which is final.
func settled(ans *semel.Answer) bool {
	return ans.Record != nil && ans.Record.State == semel.Failed && ans.Record.Disposition == store.DispositionRejected
}

// send has the event delivered by the outbox of its record.
func (r *Receiver) send(_ context.Context, x semel.Execution, e *Event) error {
	return r.queue(x, e, semel.Message{})
}

// queue puts the event into the outbox of its record, as a message in the state of m.
func (r *Receiver) queue(x semel.Execution, e *Event, m semel.Message) error {
	m.Name, m.Destination, m.ContentType = "event", r.Destination(), "application/octet-stream"
	var err error
	if m.Payload, err = encode(e); err == nil {
		err = semel.Send(x, m)
	}
	if err != nil {
		return semel.Aborted(err)
	}
	// A crash before the outcome is written leaves a lease that ends, and a delivery
	// without its 2xx. A crash after it leaves a message in the outbox, due or parked,
	// and the sender's next delivery is a duplicate.
	return nil
}

// handle has the event handled while the sender waits. A crash in here leaves a lease
// that ends; then the event is held, or handled again, as OnAbandoned says.
func (r *Receiver) handle(ctx context.Context, _ semel.Execution, e *Event) error {
	if e.fault != "" {
		return semel.Rejected(string(CodeUnidentified), errors.New(e.fault))
	}
	err := r.advance(ctx, e)
	if refused, ok := errors.AsType[*Refusal](err); ok {
		return semel.Rejected(string(refused.Code), refused.Err)
	}
	if err != nil {
		return err
	}
	return r.opts.Handle(ctx, e)
}

// Work handles a taken event: payload is that of a message to [Receiver.Destination]. It
// returns nil when the event is handled. Park the message if the error is a [*Refusal];
// after any other, call Work again, after a [*Later] when it says.
func (r *Receiver) Work(ctx context.Context, payload []byte) error {
	e, err := decode(payload)
	if err != nil {
		return &Refusal{CodeUnreadable, err}
	}
	if e.fault != "" {
		return &Refusal{CodeUnidentified, errors.New(e.fault)}
	}
	if err := r.advance(ctx, e); err != nil {
		return err
	}
	// A crash in here leaves the message due, and the handler gets the event again.
	return r.opts.Handle(ctx, e)
}

func (r *Receiver) report(seen Seen) {
	if r.opts.Seen != nil {
		seen.Receiver = r.opts.Name
		r.opts.Seen(seen)
	}
}

// taken is the first line of an event in the outbox; its body follows as it came.
type taken struct {
	ID         string      `json:"id"`
	Tenant     string      `json:"tenant"`
	Source     string      `json:"source"`
	Key        string      `json:"key"`
	Scope      string      `json:"scope,omitempty"`
	Type       string      `json:"type,omitempty"`
	ReceivedAt time.Time   `json:"received_at"`
	Header     http.Header `json:"header,omitempty"`
	Payment    *Payment    `json:"payment,omitempty"`
	Fault      string      `json:"fault,omitempty"`
}

func encode(e *Event) ([]byte, error) {
	line, err := json.Marshal(taken{e.ID, e.Tenant, e.Source, e.Key, e.Scope, e.Type, e.ReceivedAt, e.Header, e.Payment, e.fault})
	return append(append(line, '\n'), e.Body...), err
}

func decode(payload []byte) (*Event, error) {
	line, body, _ := bytes.Cut(payload, []byte("\n"))
	var t taken
	if err := json.Unmarshal(line, &t); err != nil {
		return nil, errors.New("the message is not one of a receiver of webhooks")
	}
	return &Event{
		ID: t.ID, Tenant: t.Tenant, Source: t.Source, Key: t.Key, Scope: t.Scope, Type: t.Type,
		ReceivedAt: t.ReceivedAt, Header: t.Header, Body: body, Payment: t.Payment, fault: t.Fault,
	}, nil
}
