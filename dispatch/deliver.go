package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/semelhq/semel"
)

// fate is what became of a message when it was looked at.
type fate struct {
	// settled: it is delivered, parked, discarded or gone. Nobody waits for it.
	settled bool
	// at is when it is looked at again, if the message or its receiver says so.
	at semel.Instant
}

// workMessage delivers a message that waits for no other. If another dispatcher is at
// work on it, or there is trouble, it stays due and is found by the next scan.
func (d *Dispatcher) workMessage(ctx context.Context, l *line, j job) {
	_, err := d.deliver(ctx, l, j.call, j.id, false)
	d.trouble(err)
}

// deliver makes one try to deliver a message, if it is time, and records what came
// of it.
func (d *Dispatcher) deliver(ctx context.Context, l *line, call semel.ID, id string, ordered bool) (fate, error) {
	// What has begun is brought to its end when the dispatcher is told to stop.
	keep := context.WithoutCancel(ctx)
	rec, m, err := d.find(keep, call, id)
	if err != nil || m == nil || m.State != semel.MessagePending {
		return fate{settled: err == nil}, err
	}
	now, err := d.store.Now(keep)
	if err != nil {
		return fate{}, err
	}
	// A message that waits behind another was put off without a failure, and is
	// tried when its turn comes.
	if m.NextAt > now && (!ordered || m.Tries > 0) {
		return fate{at: m.NextAt}, nil
	}
	if wait, ok := l.breaker.allow(); !ok {
		if ordered {
			return fate{at: now.Add(wait)}, nil
		}
		return d.postpone(keep, call, id, now, wait+jitter(l.BreakFor/4))
	}
	if err := l.bucket.wait(ctx); err != nil {
		l.breaker.skip()
		return fate{at: now}, nil // told to stop; it stays due
	}
	// A crash before the claim leaves the message due. A crash after it leaves a
	// lease: when it ends, whoever finds the message due tries again.
	ans, err := d.engine.Begin(keep, semel.Call{Tenant: call.Tenant, Principal: deliverer, Operation: operation(l.name), Key: id})
	switch {
	case err != nil:
		l.breaker.skip()
		return fate{}, err
	case ans.Decision == semel.Replay:
		// Somebody crashed between the end of the delivery and the note of it.
		l.breaker.skip()
		return d.settle(keep, call, id, semel.MessageFinding{State: semel.MessageDelivered}, func() {
			d.tell(d.events.Delivered, l, call, m, DeliveryEvent{})
		})
	case ans.Decision != semel.Execute:
		l.breaker.skip()
		return fate{}, nil
	}
	return d.try(keep, l, ans.Attempt, &rec, m)
}

// find reads the record of a call and one of its messages, which is nil where it
// is gone.
func (d *Dispatcher) find(ctx context.Context, call semel.ID, id string) (semel.Record, *semel.Message, error) {
	rec, err := d.store.Get(ctx, call)
	if errors.Is(err, semel.ErrNotFound) {
		return rec, nil, nil
	}
	if err != nil {
		return rec, nil, err
	}
	for i := range rec.Outbox {
		if rec.Outbox[i].ID == id {
			return rec, &rec.Outbox[i], nil
		}
	}
	return rec, nil, nil
}

// try sends a message under the right to do so.
func (d *Dispatcher) try(ctx context.Context, l *line, a *semel.Attempt, rec *semel.Record, m *semel.Message) (fate, error) {
	if err := d.crash("claimed"); err != nil {
		return fate{}, err
	}
	start := time.Now()
	serr := send(a.Context(), l, Delivery{Message: m, Call: rec.ID, Try: m.Tries + 1})
	v, _ := errors.AsType[*verdict](serr)
	parked := v != nil && v.code != ""
	if changed, open := l.breaker.done(serr != nil && !parked); changed && d.events.Breaker != nil {
		d.events.Breaker(l.name, open)
	}
	if err := d.crash("sent"); err != nil {
		return fate{}, err
	}
	ev := DeliveryEvent{Try: m.Tries + 1, Took: time.Since(start), Err: serr}
	if serr == nil {
		// A crash before this write lets the message be sent again. A crash after
		// it leaves an outcome that is replayed.
		cerr := a.Complete(ctx, semel.Result{})
		if err := d.crash("completed"); err != nil {
			return fate{}, err
		}
		// The note on the record says the same, so it is made even where the end of
		// the call is not known.
		f, err := d.settle(ctx, rec.ID, m.ID, semel.MessageFinding{State: semel.MessageDelivered}, func() {
			d.tell(d.events.Delivered, l, rec.ID, m, ev)
		})
		return f, errors.Join(cerr, err)
	}
	// A crash before this write leaves a lease that ends, a crash after it a message
	// that is due and a try that is not counted.
	ferr := a.Fail(ctx, semel.Failure{Code: "not_delivered", Message: kept(serr)}, semel.Result{})
	if err := d.crash("failed"); err != nil {
		return fate{}, err
	}
	f, err := d.tried(ctx, l, rec, m, v, ev)
	return f, errors.Join(ferr, err)
}

// kept is what the record of a message says of a failure. Its sender may read that, and
// is not to learn from it what the network of this service looks like; observers get
// the error as it is.
func kept(err error) string {
	if e, ok := errors.AsType[*unreached](err); ok {
		return e.kept()
	}
	return err.Error()
}

// send calls the sender. What panics has not said that it delivered.
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

// tried records a try in vain.
func (d *Dispatcher) tried(ctx context.Context, l *line, rec *semel.Record, m *semel.Message, v *verdict, ev DeliveryEvent) (fate, error) {
	now, err := d.store.Now(ctx)
	if err != nil {
		return fate{}, err
	}
	tries := m.Tries + 1
	finding := semel.MessageFinding{State: semel.MessageParked, Failure: &semel.Failure{Code: "not_delivered", Message: kept(ev.Err)}}
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
		finding.State, finding.RetryAfter = semel.MessagePending, pause
		ev.Next = now.Add(pause)
		f, err := d.settle(ctx, rec.ID, m.ID, finding, func() { d.tell(d.events.Failed, l, rec.ID, m, ev) })
		if !f.settled {
			f.at = ev.Next
		}
		return f, err
	}
	return d.settle(ctx, rec.ID, m.ID, finding, func() { d.tell(d.events.Parked, l, rec.ID, m, ev) })
}

// settle records what became of a message. What another has recorded stands.
func (d *Dispatcher) settle(ctx context.Context, call semel.ID, id string, f semel.MessageFinding, told func()) (fate, error) {
	done := fate{settled: f.State != semel.MessagePending}
	// A crash before this write leaves the message due: the next try finds what the
	// call of its delivery says. A crash after it leaves nothing to do.
	_, err := d.engine.SettleMessage(ctx, call, id, f)
	switch {
	case errors.Is(err, &semel.Error{Code: semel.CodeIllegalTransition}), errors.Is(err, semel.ErrNotFound):
		return fate{settled: true}, nil
	case err != nil:
		return fate{}, err
	}
	if told != nil {
		told()
	}
	return done, d.crash("settled")
}

// postpone puts a message off that was not tried.
func (d *Dispatcher) postpone(ctx context.Context, call semel.ID, id string, now semel.Instant, pause time.Duration) (fate, error) {
	// A crash before or after this write leaves the message to be found due, sooner
	// or later.
	f, err := d.settle(ctx, call, id, semel.MessageFinding{State: semel.MessagePending, RetryAfter: pause}, nil)
	f.at = now.Add(pause)
	return f, err
}

// tell fills in an event and calls its observer.
func (d *Dispatcher) tell(f func(DeliveryEvent), l *line, call semel.ID, m *semel.Message, ev DeliveryEvent) {
	if f == nil {
		return
	}
	ev.Destination, ev.MessageID, ev.Tenant = l.name, m.ID, call.Tenant
	if now, err := d.store.Now(context.Background()); err == nil {
		ev.Waited = now.Sub(m.CreatedAt)
	}
	f(ev)
}
