package semel

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// Attempt is the right to execute one call, under a lease that renews itself at
// a third of its time. It is ended by exactly one of Complete, Reject, Fail,
// Abort, Hold and Abandon; a process that dies before leaves it to be settled by
// policy.
//
// Its methods may be called concurrently.
type Attempt struct {
	op     *operation
	parent context.Context // whose values the handler sees; never its cancellation

	// mu is held while the store is written to.
	mu     sync.Mutex
	rec    *Record       // as last known to be stored; never changed, only replaced
	until  time.Duration // local time at which the handler must have stopped
	doubt  *doubt        // a write after rec whose result is not known yet
	outbox []Message     // what is sent if the attempt completes
	ended  event         // how the attempt ended; evNone while it runs
	// unrecorded: a read-only call, of which the store knows nothing.
	unrecorded bool
	// detached: the holder is in another process and renews by itself.
	detached bool

	// lease is the attempt's place among those to be renewed.
	lease leaseEntry

	// handler is what the handler sees. It has a lock of its own, so that the
	// handler can be told to stop while the store does not answer.
	handler handlerContext

	// claim is the record that established the right. It lives as long as the
	// attempt, so they are one piece of memory. It never changes.
	claim Record
}

// doubt is a write whose result is not known yet.
type doubt struct {
	version
	ending   event  // what it ends the attempt with, if it does
	uncalled string // an effect in it that was never called
}

// start hands out the right that the claim established, and keeps its lease
// alive, which began after the local time since. rec is the claim as it is stored.
func (a *Attempt) start(ctx context.Context, op *operation, rec *Record, since time.Duration) {
	a.op, a.parent, a.rec = op, ctx, rec
	a.leased(since)
}

// leased takes note of a lease that began after a local time. The caller holds a.mu,
// or is alone.
func (a *Attempt) leased(since time.Duration) {
	if a.detached || a.unrecorded {
		return
	}
	a.until = since + handlerTime(a.claim.Policy.Lease)
	a.op.leases.add(a, since)
}

// handlerTime is for how much of a lease its handler may run: a tenth is left for it
// to notice that it has to stop.
func handlerTime(lease time.Duration) time.Duration { return lease - lease/10 }

// overdue reports whether the handler must have stopped by now, by a clock that is
// read now: whoever was to tell it may be late.
func (a *Attempt) overdue() bool {
	return !a.detached && !a.unrecorded && a.op.engine.elapsed() >= a.until
}

// beginUnrecorded gives a read-only call an attempt of which nothing is stored
// (IDS-VI.3).
func (e *Engine) beginUnrecorded(ctx context.Context, op *operation, id *ID, call *Call, ans *Answer) error {
	now, err := e.now(ctx)
	if err != nil {
		return err
	}
	a := &Attempt{op: op, parent: ctx, unrecorded: true}
	a.rec = &a.claim
	if err := open(&op.Operation, id, call, &none, now, e.node, &a.claim); err != nil {
		return err
	}
	ans.Decision, ans.Record, ans.Attempt = Execute, &a.claim, a
	return e.tell(ctx, &op.Operation, call, ans, now, 0)
}

// Context is what the handler runs under. It has the values of the context given
// to Begin, but neither its cancellation nor its deadline: a caller that hangs
// up stops nothing. It is cancelled when the lease is lost, with [ErrLeaseLost]
// as cause, and when the attempt has ended.
func (a *Attempt) Context() context.Context {
	return a.handler.get(a.parent)
}

// ID is the identity of the call.
func (a *Attempt) ID() ID { return a.claim.ID }

// Fence is the number that rises with every attempt at this call. A resource
// that remembers the highest fence it has seen can refuse a holder that was
// paused and has been replaced.
func (a *Attempt) Fence() int64 { return a.claim.Fence }

// Number counts the attempts of this call, from 1.
func (a *Attempt) Number() int { return a.claim.Attempt }

// Record is the record as last known to be stored. It may not be changed.
func (a *Attempt) Record() *Record {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.rec
}

// Complete ends the attempt with its result. When it returns nil the result is
// durable and every duplicate gets it. Repeating it with the same result is
// harmless; ending the attempt in another way afterwards is [CodeAlreadyEnded].
//
// Completing is possible after the lease has ended as long as nobody else was
// given the right to execute, also if the record is held by then: the holder
// knows best what happened.
//
// An error with [CodeUnknown] means that the store did not say whether the result
// was kept; calling again resolves it.
func (a *Attempt) Complete(ctx context.Context, res Result) error {
	return a.end(ctx, evComplete, res, nil)
}

// Reject ends the attempt as refused for good: every duplicate gets the same
// refusal and result, whatever OnFailure says. Otherwise as Complete.
func (a *Attempt) Reject(ctx context.Context, f Failure, res Result) error {
	return a.end(ctx, evReject, res, &f)
}

// Fail ends the attempt as failed; Operation.OnFailure decides what the next
// delivery gets. The handler says by this that it knows it failed: when an
// effect may have happened and its result is not known, use Hold. Otherwise as
// Complete.
func (a *Attempt) Fail(ctx context.Context, f Failure, res Result) error {
	return a.end(ctx, evFail, res, &f)
}

// Abort ends the attempt with proof that no effect happened: the next delivery
// runs again. Otherwise as Complete.
func (a *Attempt) Abort(ctx context.Context, f Failure) error {
	return a.end(ctx, evAbort, Result{}, &f)
}

// Hold gives the attempt up with an unknown outcome: nobody runs the call again
// until it is settled by Operation.Reconcile or [Engine.Settle]. The messages that
// it would have sent are dropped, see [Settlement].Messages. The reason is for people.
func (a *Attempt) Hold(ctx context.Context, reason string) error {
	if reason == "" {
		reason = "the holder does not know the outcome"
	}
	return a.end(ctx, evHold, Result{}, &Failure{Message: reason})
}

// Abandon gives the attempt up without a word about its outcome, as if the holder
// had died: it may run again if the ledger or Operation.OnAbandoned allows that,
// otherwise it is held. The reason is for people.
func (a *Attempt) Abandon(ctx context.Context, reason string) error {
	if a.mayRunAgain() {
		return a.end(ctx, evAbandon, Result{}, &Failure{Message: reason})
	}
	return a.Hold(ctx, reason)
}

func (a *Attempt) mayRunAgain() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return mayRunAgain(a.rec)
}

// end makes the end of the attempt durable and then tells those who wait.
func (a *Attempt) end(ctx context.Context, ev event, res Result, f *Failure) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	err := a.tryEnd(ctx, ev, res, f)
	if err != nil && a.ended == evNone && (a.doubt == nil || a.doubt.ending == evNone) {
		// The handler is done, and how it ended was not even sent. If its lease were
		// renewed nobody could ever have the call again; so it ends, unless the end
		// is told again before, and policy settles the attempt.
		a.detach()
	}
	return err
}

func (a *Attempt) tryEnd(ctx context.Context, ev event, res Result, f *Failure) error {
	if err := a.settlePending(ctx, a.op.engine.patiently()); err != nil {
		return err
	}
	if a.ended != evNone {
		return a.endedAlready(ev, res, f)
	}
	if e := a.op.engine; e.local == nil { // the clock and the write share a limit
		call, own := e.storeCall(ctx)
		if own {
			defer call.end()
		}
		ctx = call
	}
	// A crash before this write leaves a lease that ends and an attempt that is
	// settled by policy. A crash after it leaves nothing to do: duplicates
	// find the outcome.
	kind := ChangeEnded
	if ev == evHold {
		kind = ChangeHeld
	}
	err := a.write(ctx, kind, func(cur *Record, at reading) (*Record, error) {
		if ev == evHold {
			return hold(cur, f.Message, at.now)
		}
		next, err := end(cur, ev, at.now, res, f)
		if err == nil && ev == evComplete {
			next.send(a.outbox, at.now)
		}
		return next, err
	})
	if err != nil {
		if a.doubt != nil {
			a.doubt.ending = ev
		}
		return err
	}
	a.finish(ev)
	return nil
}

// endedAlready compares a repeated end with the first.
func (a *Attempt) endedAlready(ev event, res Result, f *Failure) error {
	same := a.ended == ev && (a.rec.Result.Tombstone || bytes.Equal(a.rec.Result.Data, res.Data))
	if ev != evHold && same {
		same = sameFailure(a.rec.Failure, f)
	}
	if same {
		return nil
	}
	return &Error{Code: CodeAlreadyEnded, Message: "the attempt has ended already, in another way"}
}

// finish stops what runs for an attempt whose end is durable, and tells of it.
func (a *Attempt) finish(ev event) {
	a.ended = ev
	if ev != evHold {
		a.op.latency.observe(a.rec.EndedAt.Sub(a.rec.StartedAt))
	}
	a.op.leases.remove(a)
	a.handler.stop(nil)
	a.op.engine.ended(a.rec, "holder", "")
}

// write makes change(a.rec) durable as the successor of a.rec. The caller holds
// a.mu. A write whose result was unknown is resolved first, for only then is it
// known what the next one follows.
func (a *Attempt) write(ctx context.Context, kind Change, change changeFunc) error {
	return a.writeBy(ctx, a.op.engine.patiently(), kind, change)
}

// changeFunc makes the successor of a record, by the clock as it is then.
type changeFunc func(cur *Record, at reading) (*Record, error)

// sending is how an attempt asks the store: until it answers, or once.
type sending struct {
	read  func(ctx context.Context) (reading, error)
	apply func(ctx context.Context, v version) (*Record, bool, error)
}

func (e *Engine) patiently() sending { return sending{e.patientRead, e.apply} }

func (e *Engine) once() sending {
	return sending{e.read, func(ctx context.Context, v version) (*Record, bool, error) { return e.applyOnce(ctx, &v, 1) }}
}

func (a *Attempt) writeBy(ctx context.Context, by sending, kind Change, change changeFunc) error {
	if a.unrecorded {
		at, err := by.read(ctx)
		if err != nil {
			return err
		}
		next, err := change(a.rec, at)
		if err == nil {
			a.rec = next
		}
		return err
	}
	if err := a.settlePending(ctx, by); err != nil {
		return err
	}
	if a.ended != evNone {
		return &Error{Code: CodeAlreadyEnded, Message: "the attempt has ended"}
	}
	for range maxClaims {
		at, err := by.read(ctx)
		if err != nil {
			return &Error{Code: CodeUnknown, Message: "the store did not answer, and nothing was written", Err: err}
		}
		next, err := change(a.rec, at)
		if err != nil {
			return err
		}
		v := a.op.engine.stamp(&a.op.Operation, a.rec, next, kind)
		cur, applied, err := by.apply(ctx, v)
		if err != nil {
			if !errors.Is(err, ErrNotApplied) {
				a.doubt = &doubt{version: v}
			}
			return errWriteUnknown(err)
		}
		if applied || followed(next, cur) {
			a.rec = next
			return nil
		}
		if err := a.rebase(cur); err != nil {
			return err
		}
	}
	return &Error{Code: CodeUnknown, Message: "the record changes too fast"}
}

func errWriteUnknown(err error) error {
	return &Error{Code: CodeUnknown, Message: "the store did not say whether the write was kept", Err: err}
}

// settlePending finds out about a write whose result was unknown.
func (a *Attempt) settlePending(ctx context.Context, by sending) error {
	d := a.doubt
	if d == nil {
		return nil
	}
	cur, applied, err := by.apply(ctx, d.version)
	if err != nil {
		return errWriteUnknown(err)
	}
	a.doubt = nil
	if applied || followed(d.rec, cur) {
		a.rec = d.rec
		if d.ending != evNone {
			a.finish(d.ending)
			return nil
		}
	} else if err := a.rebase(cur); err != nil {
		return err
	}
	name := d.uncalled
	if name == "" || a.rec.effectIndex(name) < 0 {
		return nil
	}
	return a.uncall(ctx, by, name)
}

// uncall says in the ledger that an effect which was started was not called and will
// not be. The caller holds a.mu.
func (a *Attempt) uncall(ctx context.Context, by sending, name string) error {
	// A crash before this write leaves the effect started, and the attempt is held.
	// A crash after it leaves nothing to settle.
	return a.writeBy(ctx, by, ChangeEffect, func(cur *Record, at reading) (*Record, error) {
		return changeEffect(cur, name, at.now, func(ef *EffectRecord) {
			if ef.State == EffectStarted {
				ef.State = EffectRefuted
			}
		})
	})
}

// followed reports whether an end that was written has arrived although another
// version of the record is stored: it was followed by a later fact, such as a message
// that was settled, or by a further attempt. The end that is told of there is the same
// to the nanosecond.
func followed(end, cur *Record) bool {
	if !end.State.Terminal() {
		return false
	}
	if cur.Fence == end.Fence {
		return cur.State == end.State && cur.Disposition == end.Disposition && cur.EndedAt == end.EndedAt &&
			cur.Result.Tombstone == end.Result.Tombstone && bytes.Equal(cur.Result.Data, end.Result.Data) && sameFailure(cur.Failure, end.Failure) &&
			slices.EqualFunc(cur.Outbox, end.Outbox, func(a, b Message) bool { return a.ID == b.ID })
	}
	return slices.ContainsFunc(cur.Earlier, func(at AttemptRecord) bool {
		return at.Fence == end.Fence && at.Disposition == end.Disposition && at.EndedAt == end.EndedAt && sameFailure(at.Failure, end.Failure)
	})
}

// rebase accepts a record that another has changed if this attempt is still the
// newest and not terminal: it was only declared held. Anything else means that
// the right to execute is gone.
func (a *Attempt) rebase(cur *Record) error {
	if cur.Fence == a.rec.Fence && cur.State == Processing {
		a.rec = cur
		return nil
	}
	err := &Error{Code: CodeLeaseLost, Message: "the record was settled or taken over by another"}
	a.lose(err)
	return err
}

// lose tells the handler to stop. It may be called with or without a.mu.
func (a *Attempt) lose(err error) {
	if !a.handler.stop(err) {
		return
	}
	if f := a.op.engine.events.LeaseLost; f != nil {
		f(LeaseLostEvent{ID: a.claim.ID, Attempt: a.claim.Attempt, Fence: a.claim.Fence, Err: err})
	}
}

// handlerContext is what the handler is told to stop by. Most attempts end
// without anyone asking for it, so it is made when it is needed.
type handlerContext struct {
	mu      sync.Mutex
	stopped bool
	made    *madeContext
}

type madeContext struct {
	cause  error
	ctx    context.Context // nil until asked for
	cancel context.CancelCauseFunc
}

func (h *handlerContext) get(parent context.Context) context.Context {
	h.mu.Lock()
	defer h.mu.Unlock()
	m := h.make()
	if m.ctx == nil {
		m.ctx, m.cancel = context.WithCancelCause(context.WithoutCancel(parent))
		if h.stopped {
			m.cancel(m.cause)
		}
	}
	return m.ctx
}

// make is called with h.mu held.
func (h *handlerContext) make() *madeContext {
	if h.made == nil {
		h.made = new(madeContext)
	}
	return h.made
}

// stop cancels the context. It reports false if that was done before.
func (h *handlerContext) stop(cause error) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stopped {
		return false
	}
	h.stopped = true
	if cause != nil {
		h.make().cause = cause
	}
	if h.made != nil && h.made.cancel != nil {
		h.made.cancel(cause)
	}
	return true
}

// isStopped reports whether the attempt ended or its handler was told to stop.
func (h *handlerContext) isStopped() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stopped
}

// lost is why the handler was told to stop before its attempt ended, or nil.
func (h *handlerContext) lost() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.made == nil {
		return nil
	}
	return h.made.cause
}
