package semel

import "context"

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
	a := &Attempt{op: e.policyOf(id.Operation), parent: ctx, detached: true, claim: rec}
	a.rec = &a.claim
	if rec.State.Terminal() {
		a.ended = endedBy(rec.Disposition)
		a.handler.stop(nil)
	}
	return a, nil
}

// attachUnrecorded is Attach for a read-only call.
func (e *Engine) attachUnrecorded(ctx context.Context, op *operation, id *ID, fence int64) (*Attempt, error) {
	now, err := e.now(ctx)
	if err != nil {
		return nil, err
	}
	a := &Attempt{op: op, parent: ctx, detached: true, unrecorded: true}
	a.rec = &a.claim
	if err := open(&op.Operation, id, &Call{Principal: id.Principal}, &none, now, e.node, &a.claim); err != nil {
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
