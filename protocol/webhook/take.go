package webhook

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// take makes one event durable, or has it handled, once. A concurrent duplicate waits for
// it. It returns nil if the sender has done its part.
func (r *Receiver) take(ctx context.Context, e *Event) error {
	e.Tenant, e.ReceivedAt = r.opts.Tenant, r.now().UTC()
	call := semel.Call{
		Tenant: r.opts.Tenant, Principal: Principal, Scope: e.Scope, Operation: r.Destination(), Key: e.Key,
		Fingerprint: e.print, Wait: r.opts.Budget, Door: "webhook",
	}
	run := r.send
	if r.opts.Mode == Sync {
		run = r.handle
	}
	ans, err := r.engine.Do(ctx, call, func(ctx context.Context, x semel.Execution) (semel.Result, error) {
		digest := x.ID().Digest()
		e.ID = "evt_" + hex.EncodeToString(digest[:16])
		return semel.Result{}, run(ctx, x, e)
	})
	r.seen(e, ans.Decision, err)
	// A conflict means that the event was taken before, with another content. There is
	// nothing more to take, and the conflict is in the evidence log. An event that is
	// refused for good would be refused again.
	if ans.Decision == semel.Conflict || settled(&ans) {
		return nil
	}
	return err
}

// settled reports whether the event's attempt was rejected, which is final.
func settled(ans *semel.Answer) bool {
	return ans.Record != nil && ans.Record.State == semel.Failed && ans.Record.Disposition == store.DispositionRejected
}

// send has the event delivered by the outbox of its record.
func (r *Receiver) send(_ context.Context, x semel.Execution, e *Event) error {
	payload, err := encode(e)
	if err == nil {
		err = semel.Send(x, semel.Message{Name: "event", Destination: r.Destination(), ContentType: "application/octet-stream", Payload: payload})
	}
	if err != nil {
		return semel.Aborted(err)
	}
	// A crash before the outcome is written leaves a lease that ends, and a delivery
	// without its 2xx. A crash after it leaves a due message in the outbox, and the
	// sender's next delivery is a duplicate.
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

func (r *Receiver) seen(e *Event, d semel.Decision, err error) {
	if r.opts.Seen != nil {
		r.opts.Seen(Seen{Event: e, Decision: d, Err: err})
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
