package semel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/semelhq/semel/internal/engine/callctx"
	"github.com/semelhq/semel/internal/engine/guard"
	"github.com/semelhq/semel/internal/engine/segments"
	"github.com/semelhq/semel/store"
)

// purge deletes expired records, after archiving those that must be archived, and returns how
// many it deleted, and how many stay because no archive took them. It leaves records
// whose fence the clock may not have passed for a later sweep.
func (e *Engine) purge(ctx context.Context, recs []*Record) (n, unarchived int, err error) {
	ps := e.extras.Purge
	if ps == nil || len(recs) == 0 {
		return 0, 0, nil
	}
	now, err := e.now(ctx)
	if err != nil {
		return 0, 0, err
	}
	recs = slices.DeleteFunc(recs, func(rec *Record) bool { return !fencePassed(rec, now) })
	free, aerr := e.archived(ctx, recs)
	unarchived = len(recs) - len(free)
	refs := make([]store.Ref, len(free))
	for i, rec := range free {
		refs[i] = rec.Ref()
	}
	if len(refs) == 0 {
		return 0, unarchived, aerr
	}
	// A crash before or during this write leaves expired records, which count
	// as absent and are found due again; those that were archived are archived
	// a second time.
	call, cancel := e.limited(ctx)
	defer cancel()
	n, err = ps.Purge(call, refs)
	if err != nil {
		return n, unarchived, errors.Join(aerr, e.storeError(ctx, "purge", ID{}, err))
	}
	if n > 0 && e.events.Purged != nil {
		e.events.Purged(Purged{Count: n})
	}
	return n, unarchived, aerr
}

// forget takes from records what doesn't stay after their window, all at once so that the store can
// write them in batches. Those that must be archived are archived before that, whole.
func (e *Engine) forget(ctx context.Context, recs []*Record, now store.Instant, n *Swept) error {
	free, err := e.archived(ctx, recs)
	n.Unarchived += len(recs) - len(free)
	var done atomic.Int64
	err = errors.Join(err, guard.Each("what observes the engine", free, func(rec *Record) error {
		next, err := forget(rec, now)
		if err != nil {
			return err
		}
		// A crash before this write leaves the record whole: no delivery gets its answer any more, a
		// sweep finds it again, and the archive gets it again. A crash after it leaves nothing to do.
		_, applied, err := e.replace(ctx, e.policyOf(rec.ID.Operation), rec, next, store.ChangeForgotten, nil)
		if applied {
			done.Add(1)
		}
		return err
	}))
	n.Forgotten += int(done.Load())
	return err
}

// archived archives those of recs that must be archived, and returns those that may be
// deleted: all, or if that fails those that needn't be archived.
func (e *Engine) archived(ctx context.Context, recs []*Record) ([]*Record, error) {
	var keep []Record
	free := make([]*Record, 0, len(recs))
	for _, rec := range recs {
		if op, ok := (*e.ops.Load())[rec.ID.Operation]; rec.Mark == nil && !rec.OnlyNamed() && (rec.Policy.Archive || ok && op.OnExpiry == ArchiveExpired) {
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
	limited, cancel := context.WithTimeout(ctx, archiveLimit)
	defer cancel()
	// After a timeout the archive may have taken them: they are archived again.
	if err := e.archive.Do(limited, func(ctx context.Context) error { return e.opts.Archive(ctx, keep) }); err != nil {
		return free, fmt.Errorf("semel: archive: %w", err)
	}
	return recs, nil
}

var errNoArchive = &Error{Code: CodeUnsupported, Message: "an operation is to be archived and there is no archive"}

// archiveLimit bounds how long the archive may take for the records of one sweep. The
// sweep waits for it. If it never answers, it isn't called again, and its records aren't purged;
// other records are.
const archiveLimit = 10 * time.Second

// Removal says why a record is purged before its window is over.
type Removal struct {
	// Reason and Who, the operator's name, go to Events and into the evidence. Both are for
	// people.
	Reason, Who string
	// Fence, if set, must be the fence of the record's newest attempt. If another attempt was made
	// since, nothing is purged and Purge returns [CodeIllegalTransition]; if the record is gone,
	// [ErrNotFound]. Zero: whatever record there is.
	Fence int64
	// Force purges a record of an operation that isn't registered with this engine.
	// The policy in the record then says whether it is archived.
	Force bool
	// EraseEvidence also erases what the evidence log says in plain text about the identity,
	// for example because a person asks to be forgotten: the key, the principal, and who
	// changed the record and why, including this purge. The log still proves that there were
	// changes. Every engine on the store learns of it, see Events.Erased. If there is a log and
	// this engine doesn't write it, Purge refuses with [CodeUnsupported].
	EraseEvidence bool
}

// Purge deletes a terminal record before its window is over, for an operator: the next
// delivery of the call runs again. If its last attempt began less than about a second
// ago, Purge waits, so that fences keep rising. The record is archived first if its
// policy says so, and the evidence of the purge is durable before it. A record that is
// processing is refused with [CodeIllegalTransition], and one of an operation that isn't
// registered here with [CodeUnknownOperation], unless it is forced.
//
// The identity of a sequence stands for all its numbers: they are purged one after the other,
// and then the order. If one of them is processing, those before it are gone and the others
// stay; purge the sequence again when it has ended.
func (e *Engine) Purge(ctx context.Context, id ID, r Removal) error {
	if e.extras.Purge == nil {
		return &Error{Code: CodeUnsupported, Message: "the store can't delete records"}
	}
	if r.EraseEvidence {
		if err := e.canErase(ctx); err != nil {
			return err
		}
	}
	op, err := e.operationFor(id.Operation, r.Force)
	if err != nil {
		return err
	}
	rec, err := e.toPurge(ctx, op, id, r)
	if err != nil || rec == nil {
		return err
	}
	now, err := e.passFence(ctx, rec)
	if err != nil {
		return err
	}
	if free, err := e.archived(ctx, []*Record{rec}); err != nil || len(free) == 0 {
		return err
	}
	if rec.Sequence != 0 {
		if free, err := e.mayPurge(ctx, op, rec, now); err != nil || !free {
			return cmp.Or(err, error(&Error{Code: CodeIllegalTransition, Message: "the sequence was changed by another"}))
		}
	}
	return e.purgeRecord(ctx, op, rec, &r, now)
}

// purgeRecord deletes a record, and everything about it, once nothing prevents that.
func (e *Engine) purgeRecord(ctx context.Context, op *operation, rec *Record, r *Removal, now store.Instant) error {
	id := rec.ID
	// A crash before this write leaves nothing. A crash after it, or a concurrent change
	// of the record, leaves an entry of a purge that didn't happen: the record, and the
	// entries that follow, show that. A further purge adds another entry.
	if err := e.witnessPurge(ctx, &op.Operation, rec, &store.Settled{By: store.ByOperator, Who: keptText(r.Who), Reason: keptText(r.Reason), At: now}); err != nil {
		return err
	}
	// Erase the openings before the record, because an operator who was interrupted needs the
	// record to ask again: a crash here leaves the record, and some openings. This may take
	// longer than one call, because a record that was replayed often has many entries.
	if r.EraseEvidence {
		if err := e.eraseRecord(ctx, rec); err != nil {
			return err
		}
	}
	if err := e.purgeBeside(ctx, rec); err != nil {
		return err
	}
	// A crash before this write leaves the record, perhaps without its openings and cells. A
	// crash after it leaves cells that were written meanwhile, until they expire.
	call, cancel := e.limited(ctx)
	defer cancel()
	n, err := e.extras.Purge.Purge(call, []store.Ref{rec.Ref()})
	switch {
	case err != nil:
		return e.storeError(ctx, "purge", id, err)
	case n == 0:
		return &Error{Code: CodeIllegalTransition, Message: "the record was changed by another"}
	}
	if e.events.Purged != nil {
		e.events.Purged(Purged{Count: n, ID: id, By: store.ByOperator, Who: r.Who, Reason: r.Reason})
	}
	if err := e.purgeBeside(ctx, rec); err != nil || !r.EraseEvidence {
		return err
	}
	// Declare it again: whatever was decided until now is about the deleted record.
	if err := e.declareErased(ctx, id); err != nil {
		return err
	}
	e.tellErased(ctx)
	return nil
}

// purgeBeside deletes the cells beside a record.
func (e *Engine) purgeBeside(ctx context.Context, rec *Record) error {
	call, cancel := e.limited(ctx)
	defer cancel()
	for _, beside := range []ID{store.CountsOf(rec.ID), store.RefusedOf(rec.ID)} {
		if err := store.NewCell(e.store, beside).Remove(call); err != nil {
			return err
		}
	}
	return segments.Remove(call, e.store, rec)
}

// toPurge returns the record that Purge deletes. Of a sequence it first purges the numbers, and
// returns the mark, or none.
func (e *Engine) toPurge(ctx context.Context, op *operation, id ID, r Removal) (*Record, error) {
	rec, err := e.getIfAny(ctx, id)
	if err != nil {
		return nil, err
	}
	if err := seen(rec, r.Fence); err != nil {
		return nil, err
	}
	n := 0
	// A crash may have left a number whose mark was never written.
	if rec.Mark != nil || rec.State == absent && op.Sequenced && e.extras.Search != nil {
		if n, err = e.purgeNumbers(ctx, id, r); err == nil {
			rec, err = e.getIfAny(ctx, id)
		}
	}
	switch {
	case err != nil:
		return nil, err
	case rec.State == absent && n > 0: // the last of them has taken the mark with it
		return nil, nil
	case rec.State == absent:
		return nil, ErrNotFound
	case !rec.State.Terminal():
		return nil, &Error{Code: CodeIllegalTransition, Message: "only a record whose attempt has ended can be purged"}
	case rec.Unfinished():
		return nil, &Error{Code: CodeIllegalTransition, Message: "the record has messages to deliver, or is being compensated"}
	}
	return rec, nil
}

// passFence waits until the clock has passed the record's fence, and returns the time.
func (e *Engine) passFence(ctx context.Context, rec *Record) (store.Instant, error) {
	now, err := e.now(ctx)
	if err != nil || fencePassed(rec, now) {
		return now, err
	}
	if !callctx.Pause(ctx, fenceMargin+time.Duration(rec.Fence-now.Micros()+1)*time.Microsecond) {
		return now, ctx.Err()
	}
	if now, err = e.now(ctx); err == nil && !fencePassed(rec, now) {
		err = &Error{Code: CodeIllegalTransition, Message: "the record is too new to be purged, try again", RetryAfter: fenceMargin}
	}
	return now, err
}

// purgeNumbers purges all numbers of a sequence, and returns how many there were.
func (e *Engine) purgeNumbers(ctx context.Context, sequence ID, r Removal) (n int, err error) {
	q := store.Query{Tenant: &sequence.Tenant, Principal: sequence.Principal, Operation: sequence.Operation, KeyPrefix: sequence.Key + store.ScopeMark}
	for {
		page, err := e.Search(ctx, q)
		if err != nil {
			return n, err
		}
		r.Fence = 0 // it was the mark's
		for i := range page.Records {
			id := page.Records[i].ID
			if id != sequence.Numbered(page.Records[i].Sequence) {
				continue // of another principal: the empty one selects all
			}
			n++
			if err := e.Purge(ctx, id, r); err != nil && !errors.Is(err, ErrNotFound) {
				return n, err
			}
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			return n, nil
		}
	}
}

// epochID is the cell that holds the store's epoch: when the cell was written, and by whom.
var epochID = ID{Operation: reservedPrefix + "epoch", Key: "epoch"}

// reservedPrefix begins the names that belong to this module, and dispatchPrefix
// those of the operations that package dispatch registers.
const (
	reservedPrefix = store.ReservedPrefix
	dispatchPrefix = reservedPrefix + "dispatch"
)

// NewEpoch declares that the store was restored from a backup, at the time of this
// call: records that were made after the backup are gone, but their calls may have been
// executed. Until the window of its operation has passed, a call without a record is
// refused as [TooLate] if it was first sent before, by Call.FirstSent or by the time in
// its key. A call that has neither runs.
//
// Calls that are unfinished in the backup are held instead of executed, until the window
// of their operation has passed: attempts whose holder is gone, and attempts that failed
// or were aborted and would be followed by another. Undelivered messages are delivered,
// perhaps again, under the same ids.
//
// Other engines on the store learn the epoch from [Internal.LoadEpoch], which [Engine.Run]
// calls.
func (in Internal) NewEpoch(ctx context.Context) (time.Time, error) {
	e := in.engine
	call, own := e.storeCall(ctx)
	defer own.End()
	cell := store.NewCell(e.store, epochID)
	for range maxClaims {
		old, err := cell.Load(call)
		if err != nil {
			return time.Time{}, err
		}
		// A crash before this write leaves the epoch as it was. A crash after it leaves nothing
		// to do. If its result is unknown, a second epoch does no harm: it only refuses more.
		now, swapped, err := cell.Swap(call, old, store.CellValue{Data: []byte(e.node)})
		if err != nil {
			return time.Time{}, err
		}
		if swapped {
			e.epoch.Store(int64(now.At))
			return now.At.Time(), e.witnessEpoch(call, now.At)
		}
	}
	return time.Time{}, errTooFast
}

// witnessEpoch logs that the store was restored, so that calls that run again don't contradict
// the evidence log. A crash before this write leaves an epoch that the log doesn't have:
// declare it again.
func (e *Engine) witnessEpoch(ctx context.Context, at store.Instant) error {
	if e.extras.Evidence == nil || e.opts.Witness == nil {
		return nil
	}
	entries := e.opts.Witness.Changed(&e.internal.Operation, &none, &Record{ID: epochID, UpdatedAt: at}, store.ChangeRestored)
	if err := e.extras.Evidence.AppendEvidence(ctx, entries); err != nil {
		return e.storeError(ctx, "append evidence", epochID, err)
	}
	return nil
}

// LoadEpoch reads the store's epoch, which is zero if the store was never restored. If
// it may have been, call LoadEpoch before the engine takes calls.
func (in Internal) LoadEpoch(ctx context.Context) (time.Time, error) {
	e := in.engine
	call, cancel := e.limited(ctx)
	defer cancel()
	v, err := store.NewCell(e.store, epochID).Load(call)
	switch {
	case err != nil:
		return time.Time{}, e.storeError(ctx, "get", epochID, errors.Unwrap(err))
	case v.Revision.IsZero():
		return time.Time{}, nil
	}
	e.epoch.Store(int64(v.At))
	return v.At.Time(), nil
}

// restored reports whether a record is from a backup and may be out of date, so that
// nothing may be executed because of it. Records of this module's own operations are
// excluded: their messages are delivered at least once anyway.
func (e *Engine) restored(rec *Record, now store.Instant) bool {
	epoch := store.Instant(e.epoch.Load())
	return epoch != 0 && rec.UpdatedAt < epoch && now.Sub(epoch) < rec.Policy.Stays() && !strings.HasPrefix(rec.ID.Operation, reservedPrefix)
}

// errRestored refuses a holder a write that would make a restored record count as new, or
// let its call run again: the record lacks what the holder has done since the backup.
// Every final outcome is accepted from the holder, who knows it.
var errRestored = &Error{Code: CodeLeaseLost, Message: "the store was restored from a backup: what was done since is not known"}

// fromBackup is restored for the record of an attempt.
func (a *Attempt) fromBackup(cur *Record, at reading) bool {
	return !a.unrecorded && a.op.engine.restored(cur, at.now)
}

// beforeEpoch reports whether a call first sent at first may have been executed and
// lost when the store was restored, as far as the clocks can tell.
func (e *Engine) beforeEpoch(window time.Duration, first, now store.Instant) bool {
	epoch := store.Instant(e.epoch.Load())
	return epoch != 0 && first < epoch.Add(min(e.opts.ClockSkew, window/4)) && now.Sub(epoch) < window
}
