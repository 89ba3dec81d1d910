package client

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/wire"
	"github.com/semelhq/semel/store"
)

// Execution is the right to execute one call, which [Client.Do] gives a handler. The
// client renews its lease every third of its duration. Its methods may be called
// concurrently.
type Execution struct {
	c    *Client
	name string
	rec  *semel.Record // the claim
	// mayRunAgain: if the attempt is abandoned, another one may follow.
	mayRunAgain bool
	// financial: an unmarked error is recorded as a failure.
	financial bool

	// ctx is the handler's context; cancel tells the handler to stop.
	ctx    context.Context
	cancel context.CancelCauseFunc
	// letGo stops renewing the lease.
	letGo context.CancelFunc

	// mu is held during writes to the ledger.
	mu     sync.Mutex
	ledger map[string]store.EffectState
	// unconfirmed has the effects that we asked to start and got no answer for. They weren't
	// called.
	unconfirmed map[string]bool
	ended       bool
	// outbox has the messages that the call sends if it completes.
	outbox []semel.Message

	lease struct {
		mu    sync.Mutex
		since time.Time // a moment before it began
		d     time.Duration
		lost  error // why the handler's context ended
	}
}

// execute makes the execution of a call that has begun, and renews its lease until stop is called.
func (c *Client) execute(ctx context.Context, b *Begun) (x *Execution, stop func()) {
	x = &Execution{c: c, name: b.Execution, rec: b.Record, mayRunAgain: b.OnAbandoned == semel.RetryAbandoned, financial: b.Financial, ledger: map[string]store.EffectState{}, unconfirmed: map[string]bool{}}
	for _, ef := range b.Record.Effects {
		x.ledger[ef.Name] = ef.State
	}
	x.lease.since, x.lease.d = b.Since, b.Lease
	ctx = context.WithoutCancel(ctx)
	x.ctx, x.cancel = context.WithCancelCause(ctx)
	beating, letGo := context.WithCancel(ctx)
	x.letGo = letGo
	go x.beat(beating)
	return x, func() {
		letGo()
		x.cancel(nil)
	}
}

// ID is [semel.Attempt.ID].
func (x *Execution) ID() semel.ID { return x.rec.ID }

// Fence is [semel.Attempt.Fence].
func (x *Execution) Fence() int64 { return x.rec.Fence }

// Number is [semel.Attempt.Number].
func (x *Execution) Number() int { return x.rec.Attempt }

// Name returns the execution's name in the API.
func (x *Execution) Name() string { return x.name }

// Send is [semel.Attempt.Send]. You learn whether the service accepts the messages when the
// execution completes.
func (x *Execution) Send(m semel.Message) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.ended {
		return &semel.Error{Code: semel.CodeAlreadyEnded, Message: "the execution has ended"}
	}
	if slices.ContainsFunc(x.outbox, func(o semel.Message) bool { return o.Name == m.Name }) {
		return &semel.Error{Code: semel.CodeInvalidCall, Message: "message " + m.Name + " was sent already"}
	}
	x.outbox = append(x.outbox, m)
	return nil
}

// Renew is [semel.Attempt.Renew].
func (x *Execution) Renew(ctx context.Context) error {
	if err := x.lost(); err != nil {
		return err
	}
	since := time.Now()
	d, err := x.c.Renew(ctx, x.name)
	if err != nil {
		x.judge(err)
		return err
	}
	x.renewed(since, d)
	return nil
}

// judge tells the handler to stop if a refused renewal means that its right is gone.
func (x *Execution) judge(err error) {
	e, ok := errors.AsType[*semel.Error](err)
	if !ok {
		return
	}
	switch e.Code {
	case semel.CodeLeaseLost:
		x.lose(e)
	case semel.CodeAlreadyEnded, semel.CodeNotFound:
		x.lose(&semel.Error{Code: semel.CodeLeaseLost, Message: "the record was settled or purged by another", Err: e})
	}
}

func (x *Execution) renewed(since time.Time, d time.Duration) {
	x.lease.mu.Lock()
	defer x.lease.mu.Unlock()
	if since.After(x.lease.since) {
		x.lease.since, x.lease.d = since, d
	}
}

func (x *Execution) current() (since time.Time, d time.Duration) {
	x.lease.mu.Lock()
	defer x.lease.mu.Unlock()
	return x.lease.since, x.lease.d
}

// alive reports whether the lease certainly isn't over yet.
func (x *Execution) alive() bool {
	since, d := x.current()
	return time.Since(since) < d
}

// handlerTime returns how long the handler may run under a lease: it has the last tenth to
// notice that it must stop.
func handlerTime(lease time.Duration) time.Duration { return lease - lease/10 }

// overdue returns why the handler should have stopped by now, or nil. It reads the clock,
// because the timer that tells the handler may be late.
func (x *Execution) overdue() error {
	if since, d := x.current(); time.Since(since) >= handlerTime(d) {
		x.lose(errNotRenewed())
	}
	return x.lost()
}

func errNotRenewed() error {
	return &semel.Error{Code: semel.CodeLeaseLost, Message: "the lease could not be renewed in time"}
}

// lose tells the handler to stop.
func (x *Execution) lose(err error) {
	x.lease.mu.Lock()
	defer x.lease.mu.Unlock()
	if x.lease.lost == nil {
		x.lease.lost = err
		x.cancel(err)
	}
}

// lost returns why the handler's context ended early, or nil.
func (x *Execution) lost() error {
	x.lease.mu.Lock()
	defer x.lease.mu.Unlock()
	return x.lease.lost
}

// beat renews the lease until ctx ends or the lease is lost.
func (x *Execution) beat(ctx context.Context) {
	for {
		since, d := x.current()
		select {
		case <-time.After(time.Until(since.Add(d / 3))):
		case <-ctx.Done():
			return
		}
		if now, _ := x.current(); now.Equal(since) && !x.keep(ctx, since, d) {
			return
		}
	}
}

// keep renews the lease. It tries again while the service doesn't answer, and shortly before
// the lease may be over it tells the handler to stop: from then on somebody else may get the
// right. It reports whether the lease continues.
func (x *Execution) keep(ctx context.Context, since time.Time, d time.Duration) bool {
	left, cancel := context.WithDeadline(ctx, since.Add(handlerTime(d)))
	defer cancel()
	for {
		start := time.Now()
		r, err := x.c.try(left, x.c.onExecution(x.name, "/renew", nil), struct{}{})
		if err == nil && r.problem == nil {
			if v, err := decode[wire.Renewed](r); err == nil && v.LeaseMS > 0 {
				x.renewed(start, time.Duration(v.LeaseMS)*time.Millisecond)
				return true
			}
		}
		if err == nil && r.problem != nil {
			x.judge(r.refusal())
		}
		select {
		case <-time.After(max(d/30, time.Millisecond)):
		case <-x.ctx.Done():
			return false
		case <-left.Done():
			if ctx.Err() == nil {
				x.lose(errNotRenewed())
			}
			return false
		}
	}
}

// StartEffect is [semel.Attempt.StartEffect]: what that says about a store that failed also
// applies to a service that couldn't be reached.
func (x *Execution) StartEffect(ctx context.Context, name string) (store.EffectRecord, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.ended {
		return store.EffectRecord{}, &semel.Error{Code: semel.CodeAlreadyEnded, Message: "the attempt has ended"}
	}
	if err := x.overdue(); err != nil {
		return store.EffectRecord{}, err
	}
	if x.ledger[name] == store.EffectStarted {
		return store.EffectRecord{Name: name, State: store.EffectStarted},
			semel.Unknown(&semel.Error{Code: semel.CodeEffectUnknown, Message: "effect " + name + " was started and its result is not known"})
	}
	// While x.mu is held, nobody else starts effects of this attempt. So an effect that the
	// service has as started and this ledger doesn't was never called.
	var ef store.EffectRecord
	var err error
	if !x.unconfirmed[name] {
		ef, err = x.c.StartEffect(ctx, x.name, name)
		x.unconfirmed[name] = uncertain(err)
	}
	if x.unconfirmed[name] {
		ef, err = x.c.RestartEffect(ctx, x.name, name)
		x.unconfirmed[name] = uncertain(err)
	}
	if ef.State != "" {
		x.ledger[name] = ef.State
	}
	x.judge(err)
	if lost := x.overdue(); lost != nil && err == nil && ef.State == store.EffectStarted {
		// The answer took longer than the rest of the lease: another attempt may be at work.
		delete(x.ledger, name)
		x.unconfirmed[name] = true
		free, cancel := context.WithTimeout(context.WithoutCancel(ctx), x.c.opts.Timeout)
		defer cancel()
		x.refute(free, name)
		return ef, lost
	}
	if uncertain(err) {
		err = &notStarted{err}
	}
	return ef, err
}

// notStarted marks an error of the service that prevented an effect from being called.
type notStarted struct{ error }

func (e *notStarted) Unwrap() error { return e.error }

// uncertain reports whether the service may have done what we asked, despite an error, or may do it
// if it is asked again.
func uncertain(err error) bool {
	e, ok := errors.AsType[*semel.Error](err)
	return ok && transient(e.Code)
}

// transient reports whether the answer to the same request may be another one later.
func transient(code semel.Code) bool {
	switch code {
	case semel.CodeUnknown, semel.CodeStoreUnavailable, semel.CodeClosed, "internal", CodeOverloaded, CodeBodyTooSlow, "body_unreadable":
		return true
	}
	return false
}

// SettleEffect is [semel.Attempt.SettleEffect]. It retries until the service confirms that the
// result is recorded, ctx ends, or one lease's time has passed.
func (x *Execution) SettleEffect(ctx context.Context, f store.EffectFinding) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.ended {
		return &semel.Error{Code: semel.CodeAlreadyEnded, Message: "the attempt ended while effect " + f.Name + " was running"}
	}
	if f.Result.Tombstone {
		return errTombstone()
	}
	// The lease is renewed meanwhile, so its end says nothing about the result.
	began := time.Now()
	_, limit := x.current()
	q := x.c.settling(x.name, &f)
	q.more = func() bool { return x.alive() && time.Since(began) < limit }
	if _, err := x.c.ask(ctx, q); err != nil {
		return err
	}
	x.ledger[f.Name] = f.State
	return nil
}

// effects returns the ledger.
func (x *Execution) effects() []store.EffectRecord {
	x.mu.Lock()
	defer x.mu.Unlock()
	list := make([]store.EffectRecord, 0, len(x.ledger))
	for name, state := range x.ledger {
		list = append(list, store.EffectRecord{Name: name, State: state})
	}
	return list
}

// refuteUnconfirmed refutes the effects that we asked to start and never called.
func (x *Execution) refuteUnconfirmed(ctx context.Context) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.ended = true
	for name, asked := range x.unconfirmed {
		if asked && x.ledger[name] != store.EffectStarted {
			x.refute(ctx, name)
		}
	}
}

// refute records that an effect was never called. If that can't be recorded it stays
// started, and the next attempt is held, which is safe. The caller holds x.mu.
func (x *Execution) refute(ctx context.Context, name string) {
	err := x.c.SettleEffect(ctx, x.name, store.EffectFinding{Name: name, State: store.EffectRefuted})
	x.unconfirmed[name] = err != nil
}

// messages returns the messages to send if the call completes.
func (x *Execution) messages() []semel.Message {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Clone(x.outbox)
}
