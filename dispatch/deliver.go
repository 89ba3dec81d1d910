package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// deliverResult is what deliver did with a message.
type deliverResult struct {
	// settled: it is delivered, parked, discarded or gone; the next one may follow.
	settled bool
	// at is when to try again, if the message or its receiver says so.
	at store.Instant
}

// workMessage delivers a message without an order key. If another dispatcher is
// delivering it, or something fails, it stays due and the next scan finds it.
func (d *Dispatcher) workMessage(ctx context.Context, l *line, j job) {
	_, err := d.deliver(ctx, l, j.call, j.id, false)
	d.report(err)
}

// deliver makes one try to deliver a message, if it is time, and records the result.
func (d *Dispatcher) deliver(ctx context.Context, l *line, call semel.ID, id string, ordered bool) (deliverResult, error) {
	// Once begun, a delivery finishes even if the dispatcher's context ends.
	keep := context.WithoutCancel(ctx)
	rec, m, err := d.find(keep, call, id)
	if err != nil || m == nil {
		return deliverResult{settled: err == nil}, err
	}
	now, err := d.store.Now(keep)
	if err != nil {
		return deliverResult{}, err
	}
	// A message that waits behind another was postponed without a failure, and is
	// tried when its turn comes.
	if m.NextAt > now && (!ordered || m.Tries > 0) {
		return deliverResult{at: m.NextAt}, nil
	}
	opened, wait, ok := l.breaker.allow()
	if !ok {
		if ordered {
			return deliverResult{at: now.Add(wait)}, nil
		}
		return d.postpone(keep, call, id, now, wait+jitter(l.BreakFor/4))
	}
	if !l.pace.Allow() {
		if err := l.pace.Wait(ctx); err != nil {
			<-ctx.Done() // which is before there is a token
			l.breaker.skip(opened)
			return deliverResult{at: now}, nil // told to stop; it stays due
		}
		// Meanwhile another dispatcher may have tried it, or an operator given it up.
		tries := m.Tries
		if rec, m, err = d.find(keep, call, id); err != nil || m == nil || m.Tries != tries {
			l.breaker.skip(opened)
			return deliverResult{settled: err == nil && m == nil}, err
		}
	}
	// A crash before the claim leaves the message due. A crash after it leaves a
	// lease: when it ends, a dispatcher that finds the message due tries again.
	ans, err := d.engine.Begin(keep, semel.Call{Tenant: call.Tenant, Principal: deliverer, Operation: operation(l.name), Key: id})
	switch {
	case err != nil:
		l.breaker.skip(opened)
		return deliverResult{}, err
	case ans.Decision == semel.Replay:
		// A dispatcher crashed between the end of the delivery and its settlement.
		l.breaker.skip(opened)
		return d.settle(keep, call, id, store.MessageFinding{State: store.MessageDelivered}, func() {
			d.emit(d.events.Delivered, l, call, m, DeliveryEvent{})
		})
	case ans.Decision != semel.Execute:
		l.breaker.skip(opened)
		return deliverResult{}, nil
	}
	return d.try(keep, l, opened, ans.Attempt, rec, m)
}

// find reads the record of a call and one of its messages, which is nil if it isn't pending, or gone.
func (d *Dispatcher) find(ctx context.Context, call semel.ID, id string) (*semel.Record, *semel.Message, error) {
	rec, err := d.store.Get(ctx, call)
	if errors.Is(err, semel.ErrNotFound) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	for i := range rec.Outbox {
		if rec.Outbox[i].ID == id && rec.Outbox[i].State == store.MessagePending {
			return rec, &rec.Outbox[i], nil
		}
	}
	return nil, nil, nil
}

// try sends a message under the lease of its delivery. opened is for the breaker that allowed it.
func (d *Dispatcher) try(ctx context.Context, l *line, opened int, a *semel.Attempt, rec *semel.Record, m *semel.Message) (deliverResult, error) {
	if err := d.crash("claimed"); err != nil {
		return deliverResult{}, err
	}
	ev := DeliveryEvent{Try: m.Tries + 1, Executed: rec.Attributes[store.AttributeTrace]}
	sending := a.Context()
	if begun := d.events.Sending; begun != nil {
		sending = begun(sending, described(ev, l, rec.ID, m))
		ev.Context = sending
	}
	start := time.Now()
	serr := send(sending, l, Delivery{Message: m, Call: rec.ID, Try: m.Tries + 1})
	v, _ := errors.AsType[*verdict](serr)
	parked := v != nil && v.code != ""
	if changed, open := l.breaker.done(opened, serr != nil && !parked); changed && d.events.Breaker != nil {
		d.events.Breaker(l.name, open)
	}
	if err := d.crash("sent"); err != nil {
		return deliverResult{}, err
	}
	ev.Took, ev.Err = time.Since(start), serr
	if serr == nil {
		// A crash before this write lets the message be sent again. A crash after
		// it leaves an outcome that is replayed.
		cerr := a.Complete(ctx, semel.Result{})
		if err := d.crash("completed"); err != nil {
			return deliverResult{}, err
		}
		// The settlement says the same, so it is written even if the end of the call
		// is unknown.
		f, err := d.settle(ctx, rec.ID, m.ID, store.MessageFinding{State: store.MessageDelivered}, func() {
			d.emit(d.events.Delivered, l, rec.ID, m, ev)
		})
		return f, errors.Join(cerr, err)
	}
	// A crash before this write leaves a lease that ends, a crash after it a message
	// that is due and a try that is not counted.
	ferr := a.Fail(ctx, store.Failure{Code: "not_delivered", Message: kept(serr)}, semel.Result{})
	if err := d.crash("failed"); err != nil {
		return deliverResult{}, err
	}
	f, err := d.tried(ctx, l, rec, m, v, ev)
	return f, errors.Join(ferr, err)
}

// kept is the text of a failure for the record of a message. The sender may read it, and
// must not learn anything about this service's network from it; Events get the whole
// error.
func kept(err error) string {
	if e, ok := errors.AsType[*noAnswerError](err); ok {
		return e.kept()
	}
	return err.Error()
}

// send calls the sender. A panic counts as a failed try.
func send(ctx context.Context, l *line, x Delivery) (err error) {
	if l.Allow != nil && !l.Allow(x.Call) {
		return Park("not_allowed", errors.New("calls like this one may not send to the destination"))
	}
	ctx, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the sender panicked: %v", p)
		}
	}()
	return l.Sender.Deliver(ctx, x)
}

// tried records a failed try.
func (d *Dispatcher) tried(ctx context.Context, l *line, rec *semel.Record, m *semel.Message, v *verdict, ev DeliveryEvent) (deliverResult, error) {
	now, err := d.store.Now(ctx)
	if err != nil {
		return deliverResult{}, err
	}
	tries := m.Tries + 1
	finding := store.MessageFinding{State: store.MessageParked, Failure: &store.Failure{Code: "not_delivered", Message: kept(ev.Err)}}
	switch {
	case v != nil && v.code != "":
		finding.Failure.Code = v.code
	case tries >= l.MaxTries:
		finding.Failure.Code = "too_many_tries"
	case now.Sub(m.CreatedAt) >= l.MaxAge:
		finding.Failure.Code = "too_old"
	default:
		pause := l.backoff(tries)
		if v != nil {
			pause = max(pause, v.after)
		}
		finding.State, finding.RetryAfter = store.MessagePending, pause
		ev.Next = now.Add(pause)
		f, err := d.settle(ctx, rec.ID, m.ID, finding, func() { d.emit(d.events.Failed, l, rec.ID, m, ev) })
		if !f.settled {
			f.at = ev.Next
		}
		return f, err
	}
	return d.settle(ctx, rec.ID, m.ID, finding, func() { d.emit(d.events.Parked, l, rec.ID, m, ev) })
}

// settle records what happened to a message. It doesn't change what another dispatcher or
// an operator has recorded.
func (d *Dispatcher) settle(ctx context.Context, call semel.ID, id string, f store.MessageFinding, told func()) (deliverResult, error) {
	done := deliverResult{settled: f.State != store.MessagePending}
	// A crash before this write leaves the message due: the next try finds the outcome
	// of its delivery. A crash after it leaves nothing to do.
	_, err := d.engine.Internal().SettleMessage(ctx, call, id, f)
	switch {
	case errors.Is(err, &semel.Error{Code: semel.CodeIllegalTransition}), errors.Is(err, semel.ErrNotFound):
		return deliverResult{settled: true}, nil
	case err != nil:
		return deliverResult{}, err
	}
	if told != nil {
		told()
	}
	return done, d.crash("settled")
}

// postpone postpones a message that wasn't tried.
func (d *Dispatcher) postpone(ctx context.Context, call semel.ID, id string, now store.Instant, pause time.Duration) (deliverResult, error) {
	// A crash before or after this write leaves the message to be found due, sooner
	// or later.
	f, err := d.settle(ctx, call, id, store.MessageFinding{State: store.MessagePending, RetryAfter: pause}, nil)
	f.at = now.Add(pause)
	return f, err
}

// emit fills in an event and calls its observer.
func (d *Dispatcher) emit(f func(DeliveryEvent), l *line, call semel.ID, m *semel.Message, ev DeliveryEvent) {
	if f == nil {
		return
	}
	ev = described(ev, l, call, m)
	if now, err := d.store.Now(context.Background()); err == nil {
		ev.Waited = now.Sub(m.CreatedAt)
	}
	f(ev)
}

// described is an event that says which message it is about.
func described(ev DeliveryEvent, l *line, call semel.ID, m *semel.Message) DeliveryEvent {
	ev.Destination, ev.MessageID, ev.Tenant, ev.Call = l.name, m.ID, call.Tenant, call
	return ev
}
