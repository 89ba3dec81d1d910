package semel

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/semelhq/semel/store"
)

// epochID is the cell that holds the store's epoch, which is when it was written, and
// who wrote it.
var epochID = ID{Operation: reservedPrefix + "epoch", Key: "epoch"}

// reservedPrefix begins the names that belong to this module, and dispatchPrefix
// those of the operations that package dispatch registers.
const (
	reservedPrefix = "semel."
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
	defer own.end()
	cell := store.NewCell(e.store, epochID)
	for range maxClaims {
		old, err := cell.Load(call)
		if err != nil {
			return time.Time{}, err
		}
		// A crash before this write leaves the epoch as it was. A crash after it
		// leaves nothing to do. Where its result is unknown a second epoch, which
		// refuses more, does no harm.
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

// witnessEpoch tells the evidence log that the store was restored, so that what runs again
// doesn't contradict what the log has. A crash before this write leaves an epoch that the
// log doesn't have: declare it again.
func (e *Engine) witnessEpoch(ctx context.Context, at store.Instant) error {
	if e.extras.Evidence == nil || e.opts.Witness == nil {
		return nil
	}
	entries := e.opts.Witness.Changed(&e.internal.Operation, &none, &Record{ID: epochID, UpdatedAt: at}, store.ChangeRestored)
	if err := e.extras.Evidence.AppendEvidence(ctx, entries); err != nil {
		return e.storeError("append evidence", epochID, err)
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
		return time.Time{}, e.storeError("get", epochID, errors.Unwrap(err))
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
	return epoch != 0 && rec.UpdatedAt < epoch && now.Sub(epoch) < rec.Policy.Window && !strings.HasPrefix(rec.ID.Operation, reservedPrefix)
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
