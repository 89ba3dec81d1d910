package webhook

import (
	"context"
	"errors"
	"log/slog"
	"net/http"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/door/inbox"
	"github.com/semelhq/semel/store"
)

// head is the stored part of an event besides its body.
type head struct {
	Source  string      `json:"source"`
	Type    string      `json:"type,omitempty"`
	Header  http.Header `json:"header,omitempty"`
	Payment *Payment    `json:"payment,omitempty"`
	Mistake string      `json:"mistake,omitempty"`
}

// accept makes one event durable, or handles it, exactly once. A concurrent duplicate waits for
// it. It returns nil if the sender has done its part.
func (r *Receiver) accept(ctx context.Context, e *Event) (err error) {
	door.Tell(ctx, r.engine.Internal(), Name, e.request, func(ctx context.Context) (semel.Delivered, bool) {
		it := r.item(e)
		var res inbox.Result
		res, err = r.inbox.Accept(ctx, it)
		e.ID, e.Key = idOf(it), it.Key
		return r.told(e, &res), true
	})
	return err
}

// item returns an event in the form that the inbox accepts.
func (r *Receiver) item(e *Event) *inbox.Item[head] {
	e.Tenant, e.ReceivedAt = r.opts.Tenant, r.now().UTC()
	it := &inbox.Item[head]{
		Tenant: e.Tenant, Scope: e.Scope, Key: e.Key, Fingerprint: e.print, Former: e.former,
		Head: head{e.Source, e.Type, e.Header, e.Payment, e.mistake}, Body: e.Body, ReceivedAt: e.ReceivedAt,
	}
	// People search for the id from the sender's pages, and erasing the record needs the payment.
	own := store.Attributes{store.AttributeEventID: e.name, store.AttributePayment: r.payment(e), inbox.AttributeApart: e.apart}
	it.Attributes = r.names.Of(own, e.Type, e.Header, e.Body)
	if text, err := e.view.fill(r.order); err == nil {
		it.Order = join([]string{text}, store.MaxNameLen)
	}
	if r.opts.Mode == Sync { // the sender waits, and an event that can't be handled is refused for good
		it.Now = func(ctx context.Context) error {
			e.ID, e.Key = idOf(it), it.Key
			err := r.prepare(ctx, e)
			if refused, ok := errors.AsType[*Refusal](err); ok {
				return semel.Rejected(string(refused.Code), refused.Err)
			}
			if err != nil {
				return err
			}
			return r.opts.Handle(ctx, e)
		}
	}
	return it
}

// idOf returns the id of an accepted event.
func idOf(it *inbox.Item[head]) string {
	if it.ID == "" {
		return ""
	}
	return store.EventPrefix + it.ID
}

// handle passes an accepted event to the handler.
func (r *Receiver) handle(ctx context.Context, it *inbox.Item[head]) error {
	h := &it.Head
	e := &Event{
		ID: idOf(it), Tenant: it.Tenant, Source: h.Source, Key: it.Key, Scope: it.Scope, Type: h.Type,
		ReceivedAt: it.ReceivedAt, Header: h.Header, Body: it.Body, Payment: h.Payment, mistake: h.Mistake,
	}
	if err := r.prepare(ctx, e); err != nil {
		return err
	}
	return r.opts.Handle(ctx, e)
}

// prepare decides whether a handler gets the event, and which step of its payment it is.
func (r *Receiver) prepare(ctx context.Context, e *Event) error {
	if e.mistake != "" {
		return &Refusal{Code: CodeUnidentified, Err: errors.New(e.mistake)}
	}
	return r.advance(ctx, e)
}

// Work handles an accepted event: payload is the content of a message to [Receiver.Destination].
// It returns nil once the event is handled. Park the message if the error is a [*Refusal]; after
// any other error, call Work again, and after a [*Later] when it says.
func (r *Receiver) Work(ctx context.Context, payload []byte) error { return r.inbox.Work(ctx, payload) }

// told returns the engine's event for one delivery of an event. Keys may contain personal data,
// so the log has the record instead.
func (r *Receiver) told(e *Event, res *inbox.Result) semel.Delivered {
	if !r.engine.Internal().Listens() {
		return semel.Delivered{}
	}
	attrs := []slog.Attr{slog.String("webhook", r.opts.Name), slog.String("source", e.Source), slog.String("type", e.Type)}
	if !res.First.IsZero() {
		attrs = append(attrs, slog.String("digest", res.Content.String()), slog.String("first_digest", res.First.String()))
	}
	if res.Parked != (semel.ID{}) {
		attrs = append(attrs, slog.String("parked", res.Parked.String()))
	}
	told := res.Event()
	told.ID.Tenant, told.ID.Operation, told.Status, told.Attrs = e.Tenant, r.Destination(), e.status, attrs
	return told
}
