package semel

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"
)

// purge deletes expired records, those that are to be archived once they are. Of
// those the fence of which the clock has not passed for sure, none is deleted yet.
func (e *Engine) purge(ctx context.Context, recs []*Record) (int, error) {
	ps, ok := e.store.(PurgeStore)
	if !ok || len(recs) == 0 {
		return 0, nil
	}
	now, err := e.now(ctx)
	if err != nil {
		return 0, err
	}
	recs = slices.DeleteFunc(recs, func(rec *Record) bool { return !fencePassed(rec, now) })
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
	call, cancel := e.limited(ctx)
	defer cancel()
	n, err := ps.Purge(call, refs)
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
		if op, ok := (*e.ops.Load())[rec.ID.Operation]; rec.Policy.Archive || ok && op.Archive {
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
	if err := e.archive.take(ctx, e, keep); err != nil {
		return free, fmt.Errorf("semel: archive: %w", err)
	}
	return recs, nil
}

var errNoArchive = &Error{Code: CodeUnsupported, Message: "an operation is to be archived and there is no archive"}

// archiveLimit bounds how long the archive may take for what a sweep has for it. The
// other records wait meanwhile.
const archiveLimit = 10 * time.Second

// archiving asks the archive one question at a time. One that never answers is asked
// nothing more, and keeps from being purged what it has to keep, nothing else.
type archiving struct{ asked atomic.Bool }

var errArchiveSilent = errors.New("it has not answered an earlier question yet")

func (a *archiving) take(ctx context.Context, e *Engine, recs []Record) error {
	if !a.asked.CompareAndSwap(false, true) {
		return errArchiveSilent
	}
	ctx, cancel := context.WithTimeout(ctx, archiveLimit)
	defer cancel()
	answer := make(chan error, 1)
	go func() {
		defer a.asked.Store(false)
		answer <- e.opts.Archive(ctx, recs)
	}()
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return ctx.Err() // it may have taken them: they are archived again
	}
}

// Removal says why a record is purged before its window is over.
type Removal struct {
	// Reason goes to Events.
	Reason string
	// Force purges a record of an operation that this engine does not know. Whether
	// it is archived is then as its own policy says.
	Force bool
}

// Purge deletes a terminal record before its window is over, by an operator's
// word: the next delivery of the call runs again. Where its last attempt has only just
// begun, Purge waits for about a second, so that fences go on rising. The record is archived first if
// its policy says so, and the evidence of the purge is durable before it. A record
// that is processing is refused with [CodeIllegalTransition], and one of an
// operation that is not registered here with [CodeUnknownOperation], unless it is
// forced.
func (e *Engine) Purge(ctx context.Context, id ID, r Removal) error {
	ps, ok := e.store.(PurgeStore)
	if !ok {
		return &Error{Code: CodeUnsupported, Message: "the store can't delete records"}
	}
	op, known := e.judge(id.Operation)
	if !known && !r.Force {
		return errUnknownHere(id.Operation)
	}
	if !known {
		op = e.policyOf(id.Operation)
	}
	rec, err := e.get(ctx, id)
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
	if !fencePassed(&rec, now) { // the next fence might not be higher
		if !pause(ctx, fenceMargin+time.Duration(rec.Fence-now.micros()+1)*time.Microsecond) {
			return ctx.Err()
		}
		if now, err = e.now(ctx); err != nil {
			return err
		}
		if !fencePassed(&rec, now) {
			return &Error{Code: CodeIllegalTransition, Message: "the record is too new to be purged, try again", RetryAfter: fenceMargin}
		}
	}
	if free, err := e.archived(ctx, []*Record{&rec}); err != nil || len(free) == 0 {
		return err
	}
	// A crash before this write leaves nothing. A crash after it, or a change of the
	// record that comes between, leaves an entry of a purge that did not happen: the
	// record, and the entries that follow, show it. An operator who tries again
	// leaves another.
	if err := e.witnessPurge(ctx, &op.Operation, &rec, now); err != nil {
		return err
	}
	// A crash before this write leaves the record as it was. A crash after it
	// leaves nothing to do.
	call, cancel := e.limited(ctx)
	defer cancel()
	n, err := ps.Purge(call, []Ref{{rec.ID, rec.Revision}})
	switch {
	case err != nil:
		return e.storeError("purge", id, err)
	case n == 0:
		return &Error{Code: CodeIllegalTransition, Message: "the record was changed by another"}
	}
	if e.events.Purged != nil {
		e.events.Purged(PurgedEvent{Count: n, ID: id, By: "operator", Reason: r.Reason})
	}
	return nil
}

func errUnknownHere(operation string) error {
	return &Error{Code: CodeUnknownOperation, Message: "operation " + operation + " is not registered here: ask a program that knows it, or force it"}
}
