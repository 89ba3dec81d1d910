package semel

import (
	"cmp"
	"context"
	"errors"
	"time"
)

// sweepBatch is how many due records one sweep looks at.
const sweepBatch = 256

// Swept counts what one sweep did.
type Swept struct {
	// Due is how many records were looked at.
	Due int
	// Abandoned attempts may now run again; Held ones may not.
	Abandoned, Held int
	// Reconciled is how many held records the reconcilers were asked about.
	Reconciled int
	// Purged is how many expired records were deleted.
	Purged int
}

// Sweep attends to one batch of due records: attempts whose lease has ended are
// abandoned or held by policy, reconcilers are asked about held records, expired
// records are purged. Any number of engines may sweep one store. Problems with
// single records do not stop it; they are returned together.
//
// A store without [DueStore] has nothing to sweep.
func (e *Engine) Sweep(ctx context.Context) (Swept, error) {
	var n Swept
	ds, ok := e.store.(DueStore)
	if !ok {
		return n, nil
	}
	now, err := e.now(ctx)
	if err != nil {
		return n, err
	}
	recs, err := ds.Due(ctx, now, sweepBatch)
	if err != nil {
		return n, e.storeError("due", ID{}, err)
	}
	n.Due = len(recs)
	var expired []Ref
	var errs []error
	for i := range recs {
		rec := &recs[i]
		op := e.policyOf(rec.ID.Operation)
		switch {
		case rec.State.Terminal():
			if purgeable(rec, now) {
				expired = append(expired, Ref{rec.ID, rec.Revision})
			}
		case rec.Held != "":
			if op.Reconcile != nil {
				n.Reconciled++
				errs = append(errs, e.reconcile(ctx, op, rec))
			}
		case rec.leaseOver(now) && mayRunAgain(&op.Operation, rec):
			n.Abandoned++
			errs = append(errs, e.abandon(ctx, op, rec, now))
		case rec.leaseOver(now):
			n.Held++
			_, _, err := e.hold(ctx, op, rec, heldReason(rec), now, "reaper")
			errs = append(errs, err)
		}
	}
	purged, err := e.purge(ctx, expired)
	n.Purged = purged
	return n, errors.Join(append(errs, err)...)
}

// abandon ends an attempt whose holder went away and that may run again.
func (e *Engine) abandon(ctx context.Context, op *operation, rec *Record, now time.Time) error {
	next, err := end(&op.Operation, rec, evAbandon, now, Result{}, nil)
	if err != nil {
		return err
	}
	next.Revision = e.newRevision()
	// A crash before this write leaves the attempt to be found again. A crash
	// after it leaves nothing to do: the next delivery runs again.
	_, applied, err := e.apply(ctx, next, rec.Revision)
	if err == nil && applied {
		e.ended(next, "reaper", "")
	}
	return err
}

func (e *Engine) purge(ctx context.Context, refs []Ref) (int, error) {
	ps, ok := e.store.(PurgeStore)
	if !ok || len(refs) == 0 {
		return 0, nil
	}
	// A crash before or during this write leaves expired records, which count
	// as absent and are found due again.
	n, err := ps.Purge(ctx, refs)
	if err != nil {
		return n, e.storeError("purge", ID{}, err)
	}
	if n > 0 && e.events.Purged != nil {
		e.events.Purged(PurgedEvent{Count: n})
	}
	return n, nil
}

// Run sweeps until ctx is done, every interval, and again at once while batches
// come back full. Interval zero means 1 second. It returns the cause of ctx's
// end. Problems are told to Events and do not stop it.
func (e *Engine) Run(ctx context.Context, interval time.Duration) error {
	tick := time.NewTicker(cmp.Or(interval, time.Second))
	defer tick.Stop()
	for {
		n, err := e.Sweep(ctx)
		if err == nil && n.Due == sweepBatch && n.Purged+n.Abandoned+n.Held > 0 {
			if ctx.Err() == nil {
				continue
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}
