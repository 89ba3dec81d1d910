package semel

import (
	"context"
	"errors"
)

// Detach stops this process from renewing the lease, because the holder is
// elsewhere: it renews, and ends the attempt, through [Engine.Attach]. A holder
// that is silent for Operation.Lease loses the right.
func (a *Attempt) Detach() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.detach()
}

// detach is Detach for those who hold a.mu.
func (a *Attempt) detach() {
	a.detached = true
	a.op.leases.remove(a)
}

// Attach is the attempt that holds, or held, the record under the fence, for a
// holder that is not in this process. Identity and fence together are the right
// to it: a door checks that the holder is who began the attempt. The attempt is
// detached.
//
// Ending it again in the same way as before is harmless, as for the attempt that
// Begin gave. [ErrLeaseLost] means that another attempt has taken its place;
// [ErrNotFound] that there is no record, or an expired one. Of a read-only call
// nothing is recorded, so there is an attempt under any fence.
func (e *Engine) Attach(ctx context.Context, id ID, fence int64) (*Attempt, error) {
	if op := e.policyOf(id.Operation); op.Class == ReadOnly {
		return e.attachUnrecorded(ctx, op, &id, fence)
	}
	rec, err := e.Lookup(ctx, id)
	if err != nil {
		return nil, err
	}
	if rec.Fence != fence {
		return nil, &Error{Code: CodeLeaseLost, Message: "the record has a newer attempt, or never had this one"}
	}
	return e.attached(ctx, e.policyOf(id.Operation), &rec), nil
}

// attached is an attempt for a holder that is elsewhere.
func (e *Engine) attached(ctx context.Context, op *operation, rec *Record) *Attempt {
	a := &Attempt{op: op, parent: ctx, detached: true, claim: *rec}
	a.rec = &a.claim
	if rec.State.Terminal() {
		a.ended = endedBy(rec.Disposition)
		a.handler.stop(nil)
	}
	return a
}

// attachUnrecorded is Attach for a read-only call.
func (e *Engine) attachUnrecorded(ctx context.Context, op *operation, id *ID, fence int64) (*Attempt, error) {
	now, err := e.now(ctx)
	if err != nil {
		return nil, err
	}
	a := &Attempt{op: op, parent: ctx, detached: true, unrecorded: true}
	a.rec = &a.claim
	who, _ := id.Scope()
	if err := open(&op.Operation, id, &Call{Principal: who}, &none, now, e.node, &a.claim); err != nil {
		return nil, err
	}
	a.claim.Fence, a.claim.Origin = fence, fence
	return a, nil
}

// endedBy is the event that gives a disposition.
func endedBy(d Disposition) event {
	for i := range machine {
		if t := &machine[i]; t.to.Terminal() && t.disposition == d {
			return t.event
		}
	}
	return evNone
}

// Reclaim gives a holder its own claim again: for a door whose caller asks for the
// same execution once more, because the answer was lost. The holder of the call must
// be named as no other delivery is. It returns nil where the call is not being
// executed by that holder, under a lease that is not over.
//
// Giving a claim again is a write. So whoever read the record before, such as the
// release of a claim that was not answered in time, can't end the attempt any more. The
// attempt is detached.
func (e *Engine) Reclaim(ctx context.Context, call Call) (*Attempt, error) {
	var id ID
	op, err := e.admit(ctx, &call, &id)
	if err != nil || op.Class == ReadOnly || call.Holder == "" {
		return nil, err
	}
	got, err := e.get(ctx, id)
	if errors.Is(err, ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, e.storeError("get", id, err)
	}
	cur := &got
	for range maxClaims {
		now, err := e.now(ctx)
		if err != nil {
			return nil, err
		}
		if cur.State != Processing || cur.Held != "" || cur.leaseOver(now) || e.restored(cur, now) ||
			cur.Holder != call.Holder || cur.Principal != call.Principal || stranger(&call, cur) != "" || cur.Fingerprint != call.Fingerprint {
			return nil, nil
		}
		next, err := extend(cur, evRenew, now)
		if err != nil {
			return nil, err
		}
		v := e.stamp(&op.Operation, cur, next, ChangePostponed)
		// A crash before or after this write leaves a lease that ends by itself. If
		// its result stays unknown nothing is released: the holder may have the
		// claim from an earlier answer.
		stored, applied, err := e.apply(ctx, v)
		if err != nil {
			return nil, err
		}
		if applied {
			return e.attached(ctx, op, stored), nil
		}
		cur = stored
	}
	return nil, nil // it changes under every try: somebody is at work on it
}

// Release gives a claim back that nobody was told of: the attempt is aborted if its
// record is as the claim has left it. Otherwise its holder has asked for it again, and
// it is left alone. It reports whether it was released.
func (a *Attempt) Release(ctx context.Context) (bool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.unrecorded || a.ended != evNone || a.doubt != nil {
		return false, nil
	}
	released, err := a.op.engine.release(ctx, a.op, a.rec)
	if released {
		a.ended = evAbort
		a.handler.stop(nil)
	}
	a.detach()
	return released, err
}
