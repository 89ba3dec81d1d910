package client

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/semelhq/semel"
)

// Execution is the right to execute one call, which [Client.Do] gives a handler.
// Its lease is renewed at a third of its time. Its methods may be called
// concurrently.
type Execution struct {
	c    *Client
	name string
	rec  *semel.Record // the claim

	// ctx is what the handler runs under; cancel tells it to stop.
	ctx    context.Context
	cancel context.CancelCauseFunc

	// mu is held while the ledger is written to.
	mu     sync.Mutex
	ledger map[string]semel.EffectState
	// doubt has the effects whose start was asked for and not answered. They were
	// not called.
	doubt map[string]bool
	ended bool
	// outbox is what the call sends if it completes.
	outbox []semel.Message

	lease struct {
		mu    sync.Mutex
		since time.Time // a moment before it began
		d     time.Duration
		lost  error // why the handler was told to stop
	}
}

// execute makes the execution of a call that was begun, and keeps its lease alive
// until stop is called.
func (c *Client) execute(ctx context.Context, b *Begun) (x *Execution, stop func()) {
	x = &Execution{c: c, name: b.Execution, rec: b.Record, ledger: map[string]semel.EffectState{}, doubt: map[string]bool{}}
	for _, ef := range b.Record.Effects {
		x.ledger[ef.Name] = ef.State
	}
	x.lease.since, x.lease.d = b.Since, b.Lease
	ctx = context.WithoutCancel(ctx)
	x.ctx, x.cancel = context.WithCancelCause(ctx)
	beating, end := context.WithCancel(ctx)
	go x.beat(beating)
	return x, func() {
		end()
		x.cancel(nil)
	}
}

// ID is [semel.Attempt.ID].
func (x *Execution) ID() semel.ID { return x.rec.ID }

// Fence is [semel.Attempt.Fence].
func (x *Execution) Fence() int64 { return x.rec.Fence }

// Number is [semel.Attempt.Number].
func (x *Execution) Number() int { return x.rec.Attempt }

// Name names the execution on the wire.
func (x *Execution) Name() string { return x.name }

// Send is [semel.Attempt.Send]. The service says when the execution is completed
// whether it accepts the messages.
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

// judge tells the handler to stop if a refused renewal means that its right is
// gone.
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

// alive reports whether the lease can't be over yet.
func (x *Execution) alive() bool {
	since, d := x.current()
	return time.Since(since) < d
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

// lost is why the handler was told to stop, or nil.
func (x *Execution) lost() error {
	x.lease.mu.Lock()
	defer x.lease.mu.Unlock()
	return x.lease.lost
}

// beat renews the lease until ctx ends or the lease is lost.
func (x *Execution) beat(ctx context.Context) {
	for {
		since, d := x.current()
		timer := time.NewTimer(time.Until(since.Add(d / 3)))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		if now, _ := x.current(); now.Equal(since) && !x.keep(ctx, since, d) {
			return
		}
	}
}

// keep renews the lease. While the service does not answer it tries again, and
// shortly before the lease may be over it tells the handler to stop: from then on
// somebody else may be given the right. It reports whether the lease goes on.
func (x *Execution) keep(ctx context.Context, since time.Time, d time.Duration) bool {
	// A tenth is left for the handler to notice.
	left, cancel := context.WithDeadline(ctx, since.Add(d-d/10))
	defer cancel()
	for {
		start := time.Now()
		r, err := x.c.try(left, x.c.onExecution(x.name, "/renew", nil), struct{}{})
		if err == nil && r.problem == nil {
			if v, err := decode[lease](r); err == nil && v.LeaseMS > 0 {
				x.renewed(start, time.Duration(v.LeaseMS)*time.Millisecond)
				return true
			}
		}
		if err == nil && r.problem != nil {
			x.judge(r.problem.err(0))
		}
		timer := time.NewTimer(max(d/30, time.Millisecond))
		select {
		case <-timer.C:
		case <-x.ctx.Done():
			timer.Stop()
			return false
		case <-left.Done():
			timer.Stop()
			if ctx.Err() == nil {
				x.lose(&semel.Error{Code: semel.CodeLeaseLost, Message: "the lease could not be renewed in time"})
			}
			return false
		}
	}
}

// StartEffect is [semel.Attempt.StartEffect].
func (x *Execution) StartEffect(ctx context.Context, name string) (semel.EffectRecord, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.ended {
		return semel.EffectRecord{}, &semel.Error{Code: semel.CodeAlreadyEnded, Message: "the attempt has ended"}
	}
	if err := x.lost(); err != nil {
		return semel.EffectRecord{}, err
	}
	if x.ledger[name] == semel.EffectStarted {
		return semel.EffectRecord{Name: name, State: semel.EffectStarted},
			semel.Unknown(&semel.Error{Code: semel.CodeEffectUnknown, Message: "effect " + name + " was started and its result is not known"})
	}
	// Nobody else asks for this attempt while x.mu is held, so an effect that it
	// finds started although the ledger here says otherwise was never called.
	var ef semel.EffectRecord
	var err error
	if !x.doubt[name] {
		ef, err = x.c.StartEffect(ctx, x.name, name)
		x.doubt[name] = uncertain(err)
	}
	if x.doubt[name] {
		ef, err = x.c.RestartEffect(ctx, x.name, name)
		x.doubt[name] = uncertain(err)
	}
	if ef.State != "" {
		x.ledger[name] = ef.State
	}
	x.judge(err)
	return ef, err
}

// uncertain reports whether an error leaves open if the service did what it was
// asked for.
func uncertain(err error) bool {
	e, ok := errors.AsType[*semel.Error](err)
	if !ok {
		return false
	}
	switch e.Code {
	case semel.CodeUnknown, semel.CodeStoreUnavailable, semel.CodeClosed, "internal":
		return true
	}
	return false
}

// SettleEffect is [semel.Attempt.SettleEffect]. It tries until it is known to be
// recorded, ctx ends, or the lease is over.
func (x *Execution) SettleEffect(ctx context.Context, f semel.EffectFinding) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.ended {
		return &semel.Error{Code: semel.CodeAlreadyEnded, Message: "the attempt ended while effect " + f.Name + " was running"}
	}
	if f.Result.Tombstone {
		return errTombstone()
	}
	r, err := x.c.send(ctx, x.c.settling(x.name, &f), x.alive)
	if err != nil {
		return lostAnswer(err, semel.CodeUnknown)
	}
	if r.problem != nil {
		return r.problem.err(r.retry)
	}
	x.ledger[f.Name] = f.State
	return nil
}

// effectOpen reports whether the ledger has an effect without a result.
func (x *Execution) effectOpen() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, state := range x.ledger {
		if state == semel.EffectStarted {
			return true
		}
	}
	return false
}

// refuteDoubts takes the effects out of the ledger whose start was asked for and
// that were never called. If that can't be recorded they stay started: a further
// attempt is then held, which is safe.
func (x *Execution) refuteDoubts(ctx context.Context) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.ended = true
	for name, doubt := range x.doubt {
		if doubt && x.ledger[name] != semel.EffectStarted {
			_ = x.c.SettleEffect(ctx, x.name, semel.EffectFinding{Name: name, State: semel.EffectRefuted})
		}
	}
}

// messages are those to be sent if the call completes.
func (x *Execution) messages() []semel.Message {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Clone(x.outbox)
}
