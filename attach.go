package semel

import (
	"context"

	"github.com/semelhq/semel/internal/engine/callctx"
	"github.com/semelhq/semel/store"
)

// Detach stops this process from renewing the lease, because the holder is in another
// process: it renews, and ends the attempt, through [Internal.Attach]. A holder that is
// silent for Operation.Lease loses the lease.
func (a *Attempt) Detach() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.detach()
}

// detach is Detach for callers that hold a.mu.
func (a *Attempt) detach() {
	a.detached = true
	a.op.leases.Remove(&a.lease)
}

// Attach returns the attempt that holds, or held, the record under the fence, for a
// holder that isn't in this process. Attach doesn't check who asks: a door must check
// that its caller began the attempt. The attempt is detached.
//
// Ending it again in the same way as before is harmless, as for the attempt that
// Begin returned. [ErrLeaseLost] means that another attempt has taken its place;
// [ErrNotFound] that there is no record, or an expired one. Read-only calls aren't
// recorded, so they have an attempt under any fence.
func (in Internal) Attach(ctx context.Context, id ID, fence int64) (*Attempt, error) {
	e := in.engine
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

// attached returns a detached attempt for a record.
func (e *Engine) attached(ctx context.Context, op *operation, rec *Record) *Attempt {
	a := &Attempt{op: op, handler: callctx.Handler{Parent: ctx}, detached: true, claim: rec, rec: rec}
	if rec.State.Terminal() {
		a.ended = endedBy(rec.Disposition)
		a.handler.Stop(nil)
	}
	return a
}

// attachUnrecorded is Attach for a read-only call.
func (e *Engine) attachUnrecorded(ctx context.Context, op *operation, id *ID, fence int64) (*Attempt, error) {
	now, err := e.now(ctx)
	if err != nil {
		return nil, err
	}
	who, _ := id.Scope()
	d := delivery{engine: e, op: op, call: Call{Principal: who}, id: *id, cur: &none, at: reading{now: now}}
	claim, err := d.open()
	if err != nil {
		return nil, err
	}
	claim.Fence, claim.Origin = fence, fence
	return &Attempt{op: op, handler: callctx.Handler{Parent: ctx}, detached: true, unrecorded: true, claim: claim, rec: claim}, nil
}

// endedBy returns the event that leads to a disposition.
func endedBy(d store.Disposition) event {
	for i := range machine {
		if t := &machine[i]; t.to.Terminal() && t.disposition == d {
			return t.event
		}
	}
	return evNone
}

// Reclaim gives a holder its own claim again. Doors use it when a caller lost the answer and
// asks for the same execution once more. Call.Holder must be unique to the delivery. It
// returns nil if that holder isn't executing the call, or has no time left in its lease. The
// attempt is detached.
//
// Reclaiming is a write, so a Release that read the record earlier can no longer end the
// attempt.
func (in Internal) Reclaim(ctx context.Context, call Call) (*Attempt, error) {
	e := in.engine
	d := delivery{engine: e, call: call}
	err := d.admit(ctx)
	if err != nil || d.op.Class == ReadOnly || call.Holder == "" {
		return nil, err
	}
	if err := d.look(ctx); err != nil {
		return nil, err
	}
	for range maxClaims {
		if d.at, err = e.read(ctx); err != nil {
			return nil, err
		}
		if !d.holds() {
			return nil, nil
		}
		if named, err := d.markNames(ctx); !named || err != nil {
			return nil, err
		}
		next, err := extend(d.cur, evRenew, d.at.now)
		if err != nil {
			return nil, err
		}
		v := e.newVersion(&d.op.Operation, d.cur, next, store.ChangePostponed)
		// A crash before or after this write leaves a lease that ends by itself. If
		// its result stays unknown, the claim isn't released: the holder may have it
		// from an earlier answer.
		stored, applied, err := e.apply(ctx, v)
		if err != nil {
			return nil, err
		}
		// A slow write has used up too much of the lease, so renew it again, as freshen does.
		if applied && e.elapsed()-d.at.elapsed < stored.Policy.Lease/3 {
			return e.attached(ctx, d.op, stored), nil
		}
		d.cur = stored
	}
	return nil, nil // the holder is at work and changes the record, or the store is slow
}

// holds reports whether the holder of the call executes the stored attempt.
func (d *delivery) holds() bool {
	cur, call := d.cur, &d.call
	return cur.State == Processing && !cur.Held && !leaseOver(cur, d.engine.leaseTime(cur, d.at.now)) && !d.engine.restored(cur, d.at.now) &&
		cur.Holder == call.Holder && cur.Principal == call.Principal && !isForeign(call, cur) && call.Presents(cur)
}

// Release gives back a claim if the holder never got the answer: it aborts the attempt if its
// record is as the claim left it. Otherwise the holder has reclaimed it, and Release leaves it
// alone. It reports whether the claim was released. After an error the engine keeps trying by
// itself.
func (a *Attempt) Release(ctx context.Context) (bool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.unrecorded || a.ended != evNone || a.pending != nil {
		return false, nil
	}
	e := a.op.engine
	_, released, err := e.release(ctx, a.op, a.rec)
	if released {
		a.ended = evAbort
		a.handler.Stop(nil)
	}
	if err != nil { // the claim itself is stored, so nothing of it can still arrive
		e.releaseLater(release{op: a.op, id: a.rec.ID, claims: []store.Revision{a.rec.Revision}})
	}
	a.detach()
	return released, err
}
