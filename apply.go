package semel

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/semelhq/semel/internal/engine/callctx"
	"github.com/semelhq/semel/internal/engine/ratelimit"
	"github.com/semelhq/semel/store"
)

// version is a new version of a record on its way to the store. A retry sends it
// unchanged.
type version struct {
	store.Write
	usage ratelimit.Usage // of the quotas
}

// apply writes v if its predecessor is still the stored version, and returns the record stored
// afterwards: v.Record if applied, otherwise the record that got in the way, or the zero Record
// if the predecessor is gone. Don't change its arguments or results.
//
// If the store returns an error, apply finds out whether the write arrived by sending
// it again: it did if its revision is stored. An error that wraps [store.ErrNotApplied]
// means that it didn't and never will; any other means that apply still doesn't know after
// Options.StoreTimeout. apply doesn't stop when the caller hangs up, because a write that may
// have arrived can't be taken back.
func (e *Engine) apply(ctx context.Context, v version) (*Record, bool, error) {
	return e.send(ctx, &v, true)
}

// send repeats a write until it knows the result. With retryRefused it also tries again after
// the store has refused a try. Without, as for a claim, the caller gets the error at once if
// it is certain that nothing was written: retrying would add to a busy store's load.
func (e *Engine) send(ctx context.Context, v *version, retryRefused bool) (*Record, bool, error) {
	call, own := e.storeCall(ctx)
	defer own.End()
	b := firstPause
	unknown := false // whether one of the tries may have arrived
	for try := 1; ; try++ {
		cur, applied, err := e.applyOnce(call, v, try)
		switch {
		case err == nil, errors.Is(err, store.ErrTooLate):
			// An earlier try that arrived would have been found, and one that arrives
			// later is too late as well.
			return cur, applied, err
		case !errors.Is(err, store.ErrNotApplied):
			unknown = true
		case !retryRefused && !unknown:
			return nil, false, err
		}
		if b.wait(call) {
			continue
		}
		if unknown && errors.Is(err, store.ErrNotApplied) {
			err = &Error{Code: CodeStoreUnavailable, Message: "the result of a write is unknown", Err: call.Err()}
		}
		return nil, false, err
	}
}

// applyOnce sends a write. After an error its result is unknown.
func (e *Engine) applyOnce(ctx context.Context, v *version, try int) (*Record, bool, error) {
	cur, applied, err := e.store.Apply(ctx, v.Write)
	switch {
	case err != nil:
		if e.events.StoreFailed != nil {
			e.events.StoreFailed(StoreFailed{ID: v.Record.ID, Call: "apply", Err: err, Try: try})
		}
		if errors.Is(err, store.ErrNotApplied) {
			return nil, false, &Error{Code: CodeStoreUnavailable, RetryAfter: minRetryAfter, Err: err}
		}
		return nil, false, &Error{Code: CodeStoreUnavailable, Message: "the result of a write is unknown", Err: err}
	case applied || cur != nil && cur.Revision == v.Record.Revision:
		if v.usage != (ratelimit.Usage{}) {
			e.quotas.charge(ctx, v.Record, v.usage)
		}
		return v.Record, true, nil
	}
	return cmp.Or(cur, &none), false, nil
}

// errTooFast means that somebody else changed the record during each of [maxClaims] tries.
var errTooFast = &Error{Code: CodeUnknown, Message: "the record changes too fast"}

// change replaces the record of an identity by its successor, and starts over when others
// change it meanwhile. next makes the successor, or returns nil if there is nothing to change.
// change returns the record stored in the end; after an error, the one it read last, if any.
// Each caller says what a crash before and after the write leaves behind.
func (e *Engine) change(ctx context.Context, id ID, kind store.Change, next func(cur *Record, now store.Instant) (*Record, error)) (*Record, error) {
	op := e.policyOf(id.Operation)
	for range maxClaims {
		cur, err := e.get(ctx, id)
		if err != nil {
			return &none, err
		}
		now, err := e.now(ctx)
		if err != nil {
			return cur, err
		}
		rec, err := next(cur, now)
		if err != nil || rec == nil {
			return cur, err
		}
		_, applied, err := e.apply(ctx, e.newVersion(&op.Operation, cur, rec, kind))
		if err != nil {
			return cur, err
		}
		if applied {
			return rec, nil
		}
	}
	return &none, errTooFast
}

// replace writes next in place of cur, and returns the record stored afterwards. Set by if
// next ends or holds an attempt: replace then reports that to waiters and Events.
func (e *Engine) replace(ctx context.Context, op *operation, cur, next *Record, kind store.Change, by *store.Settled) (*Record, bool, error) {
	stored, applied, err := e.apply(ctx, e.newVersion(&op.Operation, cur, next, kind))
	if err == nil && applied && by != nil {
		e.ended(next, by, 0)
	}
	return stored, applied, err
}

// goOn starts rec's due work in the background, if places has room, and reports whether it did;
// otherwise it counts the record as waiting in n. First it writes next in place of rec, so that
// no other engine does the same work.
func (e *Engine) goOn(ctx context.Context, n *Swept, places chan struct{}, op *operation, rec, next *Record, work func(ctx context.Context)) (goes bool, err error) {
	select {
	case places <- struct{}{}:
	default:
		n.Waiting++
		return false, nil
	}
	defer func() {
		if !goes {
			<-places
		}
	}()
	if _, applied, err := e.replace(ctx, op, rec, next, store.ChangePostponed, nil); err != nil || !applied {
		return false, err
	}
	return e.goBackground(func(ctx context.Context) {
		defer func() { <-places }()
		work(ctx)
	}), nil
}

// retryingRead is read with retries, until Options.StoreTimeout.
func (e *Engine) retryingRead(ctx context.Context) (reading, error) {
	call, own := e.storeCall(ctx)
	defer own.End()
	at, err := e.read(call)
	for b := firstPause; err != nil && b.wait(call); {
		at, err = e.read(call)
	}
	return at, err
}

// backoff is the pause before the next call to a store that failed.
type backoff time.Duration

const firstPause = backoff(2 * time.Millisecond)

// wait pauses, longer each time, and reports false if ctx ends first.
func (b *backoff) wait(ctx context.Context) bool {
	d := time.Duration(*b)
	*b = min(*b*2, backoff(500*time.Millisecond))
	return callctx.Pause(ctx, d)
}

// Who ended an attempt that nobody settled.
var (
	byHolder = &store.Settled{By: "holder"}
	byReaper = &store.Settled{By: "reaper"}
)

// ended dispatches the messages of an ended attempt, reports it to Events, and wakes its
// waiters. added is [Ended].Added.
func (e *Engine) ended(rec *Record, by *store.Settled, added time.Duration) {
	if !e.waiters.Empty() {
		e.waiters.Wake(rec.ID)
	}
	if len(rec.Outbox) != 0 {
		e.dispatch(rec)
	}
	if e.events.Ended != nil {
		e.events.Ended(Ended{
			ID: rec.ID, Door: rec.Door, Disposition: rec.Disposition, Held: rec.Held, HeldReason: rec.HeldReason,
			Attempt: rec.Attempt, Fence: rec.Fence,
			Took: rec.UpdatedAt.Sub(rec.StartedAt), Added: added, By: by.By, Who: by.Who, Reason: by.Reason, At: rec.UpdatedAt.Time(),
		})
	}
}

// storeCall returns the context for calls to the store, and the one to end afterwards. If ctx
// is already such a context, it returns ctx and nil, so that several calls share it.
func (e *Engine) storeCall(ctx context.Context) (context.Context, *callctx.Call) {
	if _, ok := ctx.(*callctx.Call); ok {
		return ctx, nil
	}
	c := callctx.NewCall(ctx, e.opts.StoreTimeout)
	return c, c
}

// limited returns ctx with the time limit of a call to the store, for calls that may be
// cancelled with their caller.
func (e *Engine) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.(*callctx.Call); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, e.opts.StoreTimeout)
}
