package semel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// sweepBatch is how many due records a sweep looks at, and sweepReach how many it
// does where little can be done about those that it finds first.
const (
	sweepBatch = 256
	sweepReach = 8 * sweepBatch
)

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
// Some records stay due although nothing can be done about them now: their messages
// are being delivered, or they wait for the archive. A sweep that finds more of them
// than others looks further, up to a bound, and messages found at the bound are put
// off, so that they don't hide attempts whose lease has ended.
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
	var errs []error
	seen := map[Revision]bool{}
	for limit := sweepBatch; ; limit *= 2 {
		page, err := ds.Due(ctx, DueQuery{Until: now, Limit: limit})
		if err != nil {
			errs = append(errs, e.storeError("due", ID{}, err))
			break
		}
		found := page.Records
		recs := make([]*Record, 0, len(found))
		for i := range found {
			if rec := &found[i]; !seen[rec.Revision] {
				seen[rec.Revision] = true
				recs = append(recs, rec)
			}
		}
		last := limit >= sweepReach
		done, err := e.sweep(ctx, recs, now, last, &n)
		errs = append(errs, err)
		if len(found) < limit || last || len(recs) > 0 && 2*done >= len(recs) || ctx.Err() != nil {
			break
		}
	}
	return n, errors.Join(errs...)
}

// sweep attends to some due records. It returns how many of them are not due any
// more. Where it is the last, messages that were taken for delivery are put off.
func (e *Engine) sweep(ctx context.Context, recs []*Record, now Instant, last bool, n *Swept) (done int, err error) {
	n.Due += len(recs)
	var expired []*Record
	var errs []error
	did := func(err error) {
		if err == nil {
			done++
		}
		errs = append(errs, err)
	}
	for _, rec := range recs {
		op := e.policyOf(rec.ID.Operation)
		switch {
		case rec.State.Terminal() && rec.busy():
			if c := rec.Compensation; c != nil && c.State == CompensationStarted && c.NextAt <= now {
				did(e.resumeCompensation(ctx, op, rec, now))
			} else if taken := e.dispatch(rec); !taken || last {
				did(e.putOff(ctx, op, rec, now, taken))
			}
		case rec.State.Terminal():
			if purgeable(rec, now) {
				expired = append(expired, rec)
			}
		case rec.Held != "":
			if op.Reconcile != nil {
				n.Reconciled++
				did(e.reconcile(ctx, op, rec, now))
			}
		case rec.leaseOver(now) && mayRunAgain(&op.Operation, rec):
			n.Abandoned++
			did(e.abandon(ctx, op, rec, now))
		case rec.leaseOver(now):
			n.Held++
			_, _, err := e.hold(ctx, op, rec, heldReason(rec), now, "reaper")
			did(err)
		}
	}
	purged, err := e.purge(ctx, expired)
	n.Purged += purged
	return done + purged, errors.Join(append(errs, err)...)
}

// abandon ends an attempt whose holder went away and that may run again.
func (e *Engine) abandon(ctx context.Context, op *operation, rec *Record, now Instant) error {
	next, err := end(&op.Operation, rec, evAbandon, now, Result{}, nil)
	if err != nil {
		return err
	}
	v := e.stamp(&op.Operation, rec, next, ChangeEnded)
	// A crash before this write leaves the attempt to be found again. A crash
	// after it leaves nothing to do: the next delivery runs again.
	_, applied, err := e.apply(ctx, v)
	if err == nil && applied {
		e.ended(next, "reaper", "")
	}
	return err
}

// purge deletes terminal records, those of operations with Archive once they are
// archived.
func (e *Engine) purge(ctx context.Context, recs []*Record) (int, error) {
	ps, ok := e.store.(PurgeStore)
	if !ok || len(recs) == 0 {
		return 0, nil
	}
	recs, aerr := e.archived(ctx, recs)
	refs := make([]Ref, len(recs))
	for i, rec := range recs {
		refs[i] = Ref{rec.ID, rec.Revision}
	}
	if len(refs) == 0 {
		return 0, aerr
	}
	// A crash before or during this write leaves expired records, which count
	// as absent and are found due again; those that were archived are archived
	// a second time.
	n, err := ps.Purge(ctx, refs)
	if err != nil {
		return n, errors.Join(aerr, e.storeError("purge", ID{}, err))
	}
	if n > 0 && e.events.Purged != nil {
		e.events.Purged(PurgedEvent{Count: n})
	}
	return n, aerr
}

// archived is recs without those that had to be archived and could not be.
func (e *Engine) archived(ctx context.Context, recs []*Record) ([]*Record, error) {
	var keep []Record
	free := make([]*Record, 0, len(recs))
	for _, rec := range recs {
		if e.policyOf(rec.ID.Operation).Archive {
			keep = append(keep, *rec)
		} else {
			free = append(free, rec)
		}
	}
	if len(keep) == 0 {
		return free, nil
	}
	if e.opts.Archive == nil {
		return free, errNoArchive
	}
	if err := e.opts.Archive(ctx, keep); err != nil {
		return free, fmt.Errorf("semel: archive: %w", err)
	}
	return recs, nil
}

var errNoArchive = &Error{Code: CodeUnsupported, Message: "an operation is to be archived and there is no archive"}

// Purge deletes a terminal record before its window is over, by an operator's
// word: the next delivery of the call runs again. The record is archived first if
// its operation says so, and the evidence of the purge is durable before it. A record
// that is processing is refused with [CodeIllegalTransition]. The reason goes to
// Events.
func (e *Engine) Purge(ctx context.Context, id ID, reason string) error {
	ps, ok := e.store.(PurgeStore)
	if !ok {
		return &Error{Code: CodeUnsupported, Message: "the store can't delete records"}
	}
	rec, err := e.store.Get(ctx, id)
	if err != nil {
		return e.storeError("get", id, err)
	}
	now, err := e.now(ctx)
	if err != nil {
		return err
	}
	if !rec.State.Terminal() {
		return &Error{Code: CodeIllegalTransition, Message: "only a record whose attempt has ended can be purged"}
	}
	if rec.busy() {
		return &Error{Code: CodeIllegalTransition, Message: "the record has messages to deliver, or is being compensated"}
	}
	if now.micros() <= rec.Fence { // the next fence would not be higher
		return &Error{Code: CodeIllegalTransition, Message: "the record is too new to be purged, try again", RetryAfter: time.Second}
	}
	if free, err := e.archived(ctx, []*Record{&rec}); err != nil || len(free) == 0 {
		return err
	}
	// A crash before this write leaves nothing. A crash after it, or a change of the
	// record that comes between, leaves an entry of a purge that did not happen: the
	// record, and the entries that follow, show it. An operator who tries again
	// leaves another.
	if err := e.witnessPurge(ctx, &e.policyOf(id.Operation).Operation, &rec, now); err != nil {
		return err
	}
	// A crash before this write leaves the record as it was. A crash after it
	// leaves nothing to do.
	n, err := ps.Purge(ctx, []Ref{{rec.ID, rec.Revision}})
	switch {
	case err != nil:
		return e.storeError("purge", id, err)
	case n == 0:
		return &Error{Code: CodeIllegalTransition, Message: "the record was changed by another"}
	}
	if e.events.Purged != nil {
		e.events.Purged(PurgedEvent{Count: n, ID: id, By: "operator", Reason: reason})
	}
	return nil
}

// epochPause is how often Run asks for the store's epoch.
const epochPause = time.Minute

// Run sweeps until ctx is done, every interval, and again while batches come back
// full, no faster than Options.PurgeRate. Interval zero means 1 second. It returns
// the cause of ctx's end. Problems are told to Events and do not stop it.
func (e *Engine) Run(ctx context.Context, interval time.Duration) error {
	interval = cmp.Or(interval, time.Second)
	pause := time.NewTimer(0)
	defer pause.Stop()
	asked := -epochPause
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-pause.C:
		}
		if now := e.elapsed(); now-asked >= epochPause {
			asked = now
			_, _ = e.LoadEpoch(ctx) // an epoch that can't be read now is read later
		}
		n, err := e.Sweep(ctx)
		if err != nil && e.events.SweepFailed != nil && ctx.Err() == nil {
			e.events.SweepFailed(err)
		}
		next := interval
		if err == nil && n.Due >= sweepBatch && n.Purged+n.Abandoned+n.Held > 0 {
			next = 0
		}
		if e.opts.PurgeRate > 0 {
			next = max(next, time.Duration(n.Purged)*time.Second/time.Duration(e.opts.PurgeRate))
		}
		// Engines that sweep one store drift apart, so that they don't all look
		// at the same records at the same time.
		pause.Reset(next + rand.N(next/8+1))
	}
}
